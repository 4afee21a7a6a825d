import numpy as np
import pytest
import torch

from paperlib.methods import build
from tests.uploads import aggregate_uploads


@pytest.mark.parametrize(("v_0", "first"), [(None, 0.05**2), (0.0, 0.0)])
def test_server_follows_a_hand_written_adam_without_correction(start, v_0, first):
    options = {"eta_g": 0.3, "beta_1": 0.8, "beta_2": 0.95, "tau": 0.05, "v_0": v_0}
    method, progress = start("fedadam", options)
    theta, server = progress.theta, progress.server
    w, m, v = theta.numpy().copy(), np.zeros(len(theta)), np.full(len(theta), first)
    draw = np.random.default_rng(2)
    for _ in range(4):
        deltas = draw.normal(0, 0.1, (2, len(theta)))
        uploads = [(p, k, {"delta": torch.from_numpy(deltas[k])}) for k, p in enumerate((0.25, 0.75))]
        theta, server = aggregate_uploads(method, server, theta, iter(uploads))
        mean = 0.25 * deltas[0] + 0.75 * deltas[1]
        m = 0.8 * m + 0.2 * mean
        v = 0.95 * v + 0.05 * mean**2
        w += 0.3 * m / (np.sqrt(v) + 0.05)
        np.testing.assert_allclose(theta.numpy(), w, atol=1e-13, rtol=0)
    np.testing.assert_allclose(server["v"].numpy(), v, atol=1e-15, rtol=0)


@pytest.mark.parametrize("option", [{"beta_1": 1.0}, {"beta_2": -0.1}, {"tau": -1.0}, {"eta_g": 0.0}, {"v_0": -1.0}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedAdam is .*, but must be"):
        start("fedadam", option)


@pytest.mark.parametrize(("outer", "base"), [("fedadam", "fedacg"), ("fedacg", "fedadam")])
def test_looking_ahead_along_a_step_that_adam_has_changed_is_refused(outer, base):
    with pytest.raises(ValueError, match="FedAdam cannot be combined with FedACG: the point"):
        build(outer, {"base": base})
