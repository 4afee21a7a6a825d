import pytest
import torch


def test_full_participation_is_fedavg(play):
    _, varp, _ = play("fedvarp", sampled=4, rounds=4)
    _, plain, _ = play("fedavg", sampled=4, rounds=4)
    torch.testing.assert_close(varp.theta, plain.theta, atol=1e-12, rtol=0)


def test_partial_participation_is_not_fedavg(play):
    _, varp, _ = play("fedvarp")
    _, plain, _ = play("fedavg")
    assert (varp.theta - plain.theta).norm() > 1e-3


def test_constant_updates_are_averaged_over_all_clients_once_all_have_been_seen(start):
    method, progress = start("fedvarp")
    constant = torch.randn(4, len(progress.theta), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    theta, server = progress.theta, progress.server
    for cohort in ([0, 2], [1, 2], [1, 3], [0, 1], [2, 3]):
        before = theta
        uploads = ((0.5, k, {"delta": constant[k]}) for k in cohort)
        theta, server = method.aggregate(server, theta, uploads)
        if cohort in ([0, 1], [2, 3]):  # the rounds after the last client was first seen
            torch.testing.assert_close(theta - before, constant.mean(0), atol=1e-14, rtol=0)
    torch.testing.assert_close(server["y"], constant.mean(0), atol=1e-14, rtol=0)


def test_server_remembers_the_last_update_of_the_clients_it_has_seen(start):
    method, progress = start("fedvarp")
    theta, server, one = progress.theta, progress.server, torch.ones_like(progress.theta)
    _, server = method.aggregate(server, theta, iter([(1.0, 2, {"delta": one})]))
    _, server = method.aggregate(server, theta, iter([(0.5, 0, {"delta": 5 * one}), (0.5, 2, {"delta": 3 * one})]))
    assert {name: value[0].item() for name, value in server.items()} == {"y": 2.0, "y0": 5.0, "y2": 3.0}


def test_weights_by_size_are_refused(start):
    with pytest.raises(ValueError, match="FedVARP needs uniform"):
        start("fedvarp", weighting="size")
