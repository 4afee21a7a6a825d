import pytest
import torch

from tests.uploads import aggregate_uploads


def test_full_participation_is_fedavg(play):
    _, varp, _ = play("fedvarp", sampled=4, rounds=4)
    _, plain, _ = play("fedavg", sampled=4, rounds=4)
    torch.testing.assert_close(varp.theta, plain.theta, atol=1e-12, rtol=0)


def test_partial_participation_is_not_fedavg(play):
    _, varp, _ = play("fedvarp")
    _, plain, _ = play("fedavg")
    assert (varp.theta - plain.theta).norm() > 1e-3


def server_round(method, theta, server, rows, updates):
    """Clients with such updates take part: the new model and server state; ``rows`` are the clients' states."""
    uploads = []
    for client, delta in updates.items():
        own = rows.get(client) or method.client_init(client, theta)
        upload, rows[client] = method.end(torch.zeros_like(delta), delta, {}, own, None)
        uploads.append((1 / len(updates), client, upload))
    return aggregate_uploads(method, server, theta, iter(uploads))


def test_constant_updates_are_averaged_over_all_clients_once_all_have_been_seen(start):
    method, progress = start("fedvarp")
    constant = torch.randn(4, len(progress.theta), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    theta, server, rows = progress.theta, progress.server, {}
    for cohort in ([0, 2], [1, 2], [1, 3], [0, 1], [2, 3]):
        before = theta
        theta, server = server_round(method, theta, server, rows, {k: constant[k] for k in cohort})
        if cohort in ([0, 1], [2, 3]):  # the rounds after the last client was first seen
            torch.testing.assert_close(theta - before, constant.mean(0), atol=1e-14, rtol=0)
    torch.testing.assert_close(server["y"], constant.mean(0), atol=1e-14, rtol=0)


def test_clients_remember_their_last_update_and_the_server_the_mean(start):
    method, progress = start("fedvarp")
    theta, server, one, rows = progress.theta, progress.server, torch.ones_like(progress.theta), {}
    _, server = server_round(method, theta, server, rows, {2: one})
    new, server = server_round(method, theta, server, rows, {0: 5 * one, 2: 3 * one})
    assert {name: value[0].item() for name, value in server.items()} == {"y": 2.0}
    assert {client: own["y"][0].item() for client, own in rows.items()} == {0: 5.0, 2: 3.0}
    torch.testing.assert_close(new, theta + 0.25 + (5 + 2) / 2)  # y of the round before, and the mean of what is new


def test_mean_of_the_clients_updates_is_the_servers(play):
    _, progress, _ = play("fedvarp", rounds=4)
    assert set(progress.server) == {"y"} and 2 < len(progress.clients)
    mean = sum(own["y"] for own in progress.clients.values()) / 4  # zero for clients not seen yet
    torch.testing.assert_close(progress.server["y"], mean, atol=1e-14, rtol=0)


def test_weights_by_size_are_refused(start):
    with pytest.raises(ValueError, match="weighting is 'size', but FedVARP needs 'uniform'"):
        start("fedvarp", weighting="size")
