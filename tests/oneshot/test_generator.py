"""The generators: sizes, range, batch statistics, several of them at once."""

import pytest
import torch
from torch import Tensor, nn

from paperlib.oneshot.generator import KINDS, generator
from paperlib.random_streams import torch_rng


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_rng(0, "noise"))


@pytest.mark.parametrize(
    ("kind", "shape", "parameters"),
    [
        ("deconv", (3, 32, 32), 2_500_931),
        ("deconv", (1, 28, 28), 2_006_337),
        ("dense", (3, 32, 32), 2_328_899),
        ("dense", (1, 28, 28), 1_834_305),
    ],
)
def test_full_generators_have_the_parameters_of_the_paper_and_make_images_strictly_between_0_and_1(
    kind, shape, parameters
):
    net = generator(kind, 256, shape)
    assert (net.size, net.buffer_size) == (parameters, 0)
    images = net(net.initial(torch_rng(0, "theta")), noise(8, 256), train=True)
    assert images.shape == (8, *shape)
    assert 0 < images.min() < 0.4 and 0.6 < images.max() < 1


def plain(kind: str) -> nn.Module:
    """The layers as the papers list them, for 1x12x8 images, 8 latent dimensions and an eighth of the width."""
    seed = [nn.Linear(8, 16 * 3 * 2), nn.Unflatten(1, (16, 3, 2)), nn.BatchNorm2d(16)]
    if kind == "deconv":
        return nn.Sequential(
            *seed, nn.LeakyReLU(0.2), nn.ConvTranspose2d(16, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16), nn.LeakyReLU(0.2), nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
            nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.ConvTranspose2d(8, 1, 3, 1, 1), nn.Sigmoid(),
        )  # fmt: skip
    return nn.Sequential(
        *seed, nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16), nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3, padding=1), nn.Sigmoid(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_is_the_plain_module_in_training_whatever_its_own_mode(kind):
    net, module = generator(kind, 8, (1, 12, 8), width=1 / 8), plain(kind).double().train()
    theta = torch.cat([p.detach().flatten() for p in module.parameters()])
    z = noise(6, 8).double()
    expected = module(z)
    assert expected.std() > 1e-2
    for train in (True, False):
        assert torch.allclose(net(theta, z, train=train), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_images_depend_on_the_batch_they_are_made_in(kind):
    net = generator(kind, 8, (1, 8, 8), width=1 / 8)
    theta, z = net.initial(torch_rng(0, "theta")), noise(6, 8)
    assert (net(theta, z)[:3] - net(theta, z[:3])).abs().max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False], ids=["one z", "a z each"])
def test_stacked_generators_have_the_images_and_gradients_of_one_by_one(kind, shared):
    net = generator(kind, 8, (3, 8, 8), width=1 / 8)
    thetas = torch.stack([net.initial(torch_rng(0, "theta", j)) for j in range(4)]).double()
    z = noise(5, 8).double() if shared else noise(4, 5, 8).double()
    weight = noise(3, 8, 8).double()

    def loss(theta: Tensor, z: Tensor) -> Tensor:
        return (net(theta, z, train=True) * weight).sum()

    dims = (0, None if shared else 0)
    rows = [(theta, z if shared else z[j]) for j, theta in enumerate(thetas)]
    images = torch.vmap(lambda theta, z: net(theta, z, train=True), in_dims=dims)(thetas, z)
    assert torch.allclose(images, torch.stack([net(*row, train=True) for row in rows]), rtol=0, atol=1e-12)
    g = torch.vmap(torch.func.grad(loss), in_dims=dims)(thetas, z)
    expected = torch.stack([torch.func.grad(loss)(*row) for row in rows])
    assert (g - expected).abs().max() < 1e-10 < 1e-2 < expected.abs().max()
    # The backward pass of the sum over a stack gives every generator its own gradient.
    thetas.requires_grad_()
    torch.vmap(loss, in_dims=dims)(thetas, z).sum().backward()
    assert (thetas.grad - expected).abs().max() < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_generators_start_normal_around_0_and_norms_around_1(kind):
    net = generator(kind, 256, (1, 28, 28))
    for name, value in net.split(net.initial(torch_rng(0, "theta"))).items():
        if name.endswith("bias"):
            assert not value.any(), name
            continue
        mean = 1.0 if value.ndim == 1 else 0.0
        assert float(value.mean()) == pytest.approx(mean, abs=0.02 * 4 / value.numel() ** 0.5)
        assert float(value.std()) == pytest.approx(0.02, rel=4 / value.numel() ** 0.5)
        assert value.numel() < 10_000 or (value - mean).abs().max() > 3 * 0.02  # a normal one, not a uniform one


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("gan", 8, (1, 8, 8)), "unknown generator 'gan'; choose one of deconv, dense"),
        (("deconv", 8, (1, 30, 28)), "images whose sides are multiples of 4 pixels, not 30x28"),
        (("dense", 0, (1, 8, 8)), "a generator of 0 latent dimensions and width 1.0 has an empty layer"),
        (("dense", 8, (1, 8, 8), 0.001), "a generator of 8 latent dimensions and width 0.001 has an empty layer"),
    ],
)
def test_impossible_generators_are_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        generator(*arguments)
