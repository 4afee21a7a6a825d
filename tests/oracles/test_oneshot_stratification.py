"""Model stratification: scores, their normalisation, and how generators are trained."""

from functools import partial
from math import exp

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib.networks import Network
from paperlib.networks.layers import torch_default
from paperlib.oneshot.ensemble import Ensemble, Model
from paperlib.oneshot.generator import generator
from paperlib.oneshot.stratification import images_of, normalised, scores, trace, traces

U = torch.tensor([[3, 1], [1, 1], [2, 6]], dtype=torch.float64)


def test_scores_are_normalised_over_the_clients_and_over_the_classes():
    U_r, U_c = normalised(U)
    torch.testing.assert_close(U_r, torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]], dtype=torch.float64))
    torch.testing.assert_close(U_c, torch.tensor([[1 / 2, 1 / 8], [1 / 6, 1 / 8], [1 / 3, 3 / 4]], dtype=torch.float64))
    random = torch.rand(10, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    U_r, U_c = normalised(random)
    assert (U_r.sum(1) - 1).abs().max() < 1e-12
    assert (U_c.sum(0) - 1).abs().max() < 1e-12


def test_a_factor_on_a_column_is_lost_in_U_c_and_one_on_a_row_in_U_r():
    U_r, U_c = normalised(U)
    torch.testing.assert_close(normalised(7 * U), (U_r, U_c))
    column, row = torch.tensor([[5.0, 1.0]]), torch.tensor([[5.0], [1.0], [1.0]])
    torch.testing.assert_close(normalised(U * column)[1], U_c)
    torch.testing.assert_close(normalised(U * row)[0], U_r)
    assert not torch.allclose(normalised(U * column)[0], U_r)


def test_a_score_is_the_fall_of_the_loss_relative_to_its_floor():
    u = scores(torch.tensor([[[2.3, 1.5, 0.5, 0.6], [1.0, 1.0, 1.0, 1.0]]], dtype=torch.float64))
    torch.testing.assert_close(u, torch.tensor([[3.6], [0.0]], dtype=torch.float64))  # classes x clients
    random = torch.rand(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.01
    assert (scores(random) >= 0).all()
    torch.testing.assert_close(scores(5 * random), scores(random))


def test_scores_of_a_single_step_are_zero_and_normalised_uniformly():
    U_r, U_c = normalised(scores(torch.rand(5, 10, 1, dtype=torch.float64) + 1))
    assert torch.equal(U_r, torch.full_like(U_r, 1 / 5))
    assert torch.equal(U_c, torch.full_like(U_c, 1 / 10))


def test_a_loss_that_is_not_finite_is_refused_with_client_and_class():
    broken = torch.ones(3, 4, 2)
    broken[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match="client 1 and class 2"):
        scores(broken)


def test_a_floor_of_zero_gives_a_finite_score_and_a_tiny_trace_a_warning():
    with pytest.warns(UserWarning, match="client 0 class 1"):
        u = scores(torch.tensor([[[2.0, 1.0], [1e-5, 0.0]]], dtype=torch.float64))
    torch.testing.assert_close(u[1, 0], torch.tensor(1e7, dtype=torch.float64))


def test_float32_calls_a_margin_of_20_certain_and_float64_does_not():
    """In float32 1 + 9 exp(-20) is 1 in whichever order the ten are added; at 17 the processor's order decides."""
    logits = torch.zeros(1, 10)
    logits[0, 0] = 20.0
    y = torch.tensor([0])
    assert cross_entropy(logits, y) == 0
    assert float(cross_entropy(logits.double(), y)) == pytest.approx(9 * exp(-20), rel=1e-4)


def linear_client(weight: Tensor, bias: Tensor) -> Model:
    net = Network("toy", {"classifier": nn.Sequential(nn.Flatten(), nn.Linear(weight.shape[1], 10))}, torch_default)
    return Model(net, torch.cat([weight.flatten(), bias]), torch.empty(0))


def two_class_client() -> Model:
    """On 8x8 pixels: logit 0 is 10 mean(left half) - 5, logit 1 the same of the right half, the others are -5."""
    weight = torch.zeros(10, 8, 8)
    weight[0, :, :4] = weight[1, :, 4:] = 10 / 32
    return linear_client(weight.flatten(1), torch.full((10,), -5.0))


def draws(classes: int, dtype: torch.dtype = torch.float32, b: int = 64) -> tuple[Network, Tensor, Tensor]:
    """A small generator, and the same start and latent vectors for every class."""
    G = generator("deconv", 16, (1, 8, 8), width=8 / 128)
    theta = G.initial(torch.Generator().manual_seed(0)).to(dtype)
    z = torch.randn(b, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    return G, theta.expand(classes, -1), z.expand(classes, -1, -1)


def test_a_client_with_two_classes_scores_high_on_them_only():
    G, thetas, z = draws(1)
    found = traces(Ensemble([two_class_client()], [1.0], 10), partial(images_of, G), lambda k, j: (thetas[0], z[0]), 30)
    u = scores(found)[:, 0]
    assert u[:2].min() > 5 * u[2:].max()
    # The loss of a class that it does not know starts near ln(2 + 8 exp(-5)) + 5 = 5.72 and cannot fall below ln 10.
    assert u[2:].max() < 1.55
    assert found[0, 2:].min() > 2.3025


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-2), (torch.float64, 1e-8)])
def test_ten_generators_at_once_score_as_ten_alone(dtype, tolerance):
    client = two_class_client()
    client = Model(client.net, client.theta.to(dtype), client.buffers.to(dtype))
    G, thetas, z = draws(10, dtype, b=16)
    classes, inputs = torch.arange(10), partial(images_of, G)
    once = trace(client, inputs, thetas, z, classes, 30, 1e-3)
    alone = [trace(client, inputs, thetas[j : j + 1], z[j : j + 1], classes[j : j + 1], 30, 1e-3) for j in range(10)]
    u, v = scores(once[None]), scores(torch.cat(alone)[None])
    assert ((u - v).abs() / v).max() < tolerance


def test_the_first_loss_is_that_of_the_untrained_generator_and_the_start_stays_as_it_is():
    client, (G, thetas, z) = two_class_client(), draws(1)
    before = thetas.clone()
    losses = trace(client, partial(images_of, G), thetas, z, torch.tensor([3]), 4, 1e-3)
    y = torch.full((64,), 3)
    assert losses.shape == (1, 4)
    torch.testing.assert_close(losses[0, 0], cross_entropy(client(G(thetas[0], z[0], train=True)).double(), y))
    assert losses[0].diff().max() < 0
    assert torch.equal(thetas, before)
