"""Stratified aggregation, on examples worked out by hand."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.oneshot.aggregation import accuracy, averaged, self_consistent, stratified
from paperlib.oneshot.stratification import normalised


def t(*rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


U_r, U_c = normalised(t([3, 1], [1, 1], [2, 6]))
LOGITS = t([[6, 0, 3], [-3, 6, 0]], [[8, -8, 4], [0, 8, 4]])
Y = torch.tensor([0, 2])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_stratified_aggregation_by_hand():
    torch.testing.assert_close(stratified(LOGITS, Y, U_r, U_c), t([2.5, -0.25, 1.5], [-0.375, 1.0, 2.25]))
    torch.testing.assert_close(averaged(LOGITS), t([7, -4, 3.5], [-1.5, 7, 2]))


def test_uniform_scores_give_the_averaging_ensemble_at_temperature_c():
    logits, y = random(5, 7, 10), torch.arange(7)
    uniform = normalised(torch.ones(10, 5, dtype=torch.float64))
    assert (stratified(logits, y, *uniform) - averaged(logits) / 10).abs().max() < 1e-12


def test_a_single_client_is_weighted_by_class_only():
    logits, y = random(1, 4, 3), torch.tensor([0, 1, 2, 0])
    one_r, one_c = normalised(t([3], [1], [2]))
    assert torch.equal(one_r, torch.ones_like(one_r))
    torch.testing.assert_close(stratified(logits, y, one_r, one_c), logits[0] * one_c[:, 0])


def test_the_order_of_clients_is_of_no_account_and_that_of_classes_permutes_the_result():
    logits, y = random(4, 6, 5), torch.tensor([0, 4, 2, 1, 3, 3])
    U = random(5, 4, seed=1).exp()
    P = stratified(logits, y, *normalised(U))
    clients, classes = torch.tensor([2, 0, 3, 1]), torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(stratified(logits[clients], y, *normalised(U[:, clients])), P)
    moved = stratified(logits[:, :, classes], classes.argsort()[y], *normalised(U[classes]))
    torch.testing.assert_close(moved, P[:, classes])


def test_a_constant_added_to_a_clients_logits_is_not_lost():
    shifted = LOGITS.clone()
    shifted[0] += 10
    change = stratified(shifted, Y, U_r, U_c) - stratified(LOGITS, Y, U_r, U_c)
    torch.testing.assert_close(change, t([3.75, 1.25, 2.5], [1.25, 5 / 12, 5 / 6]))


def test_disjoint_pairs_of_classes_are_taught_by_their_owners_alone():
    owner = torch.arange(10)[:, None] // 2 == torch.arange(5)
    U_r, U_c = normalised(owner.double())
    logits, y = 50 * random(5, 2, 10), torch.tensor([0, 0])
    logits[0, :, :2] = t([4, -2], [-1, -3])
    P = stratified(logits, y, U_r, U_c)
    torch.testing.assert_close(P, t([2, -1, *[0] * 8], [-0.5, -1.5, *[0] * 8]))
    assert float(cross_entropy(P[:1], y[:1])) == pytest.approx(math.log(math.e**2 + math.e**-1 + 8) - 2)
    assert float(cross_entropy(P[:1], y[:1])) == pytest.approx(0.7573, abs=5e-5)
    assert P[1].argmax() >= 2  # where the owner's logits are both negative, a class that nobody spoke for wins


def test_without_a_label_every_class_is_scored_as_if_it_had_been_asked_for():
    s = self_consistent(LOGITS, U_r, U_c)
    torch.testing.assert_close(s, t([2.5, -0.5, 2.5], [-1.125, 1.0, 2.25]))
    for j in range(3):
        torch.testing.assert_close(s[:, j], stratified(LOGITS, torch.tensor([j, j]), U_r, U_c)[:, j])


def test_accuracies_of_ensembles_by_hand():
    logits, y = LOGITS[:, 1:], torch.tensor([2])
    assert accuracy(averaged(logits), y) == 0  # [-1.5, 7, 2]
    assert accuracy(self_consistent(logits, U_r, U_c), y) == 100  # [-1.125, 1, 2.25]
    assert accuracy(stratified(LOGITS, Y, U_r, U_c), Y) == 100  # [2.5, -0.25, 1.5], [-0.375, 1, 2.25]
    assert accuracy(self_consistent(logits, U_r, U_c), torch.tensor([1])) == 0


def test_U_c_times_the_softmax_and_in_the_log_domain_by_hand():
    logits = t([[math.log(6), math.log(3), 0]], [[0, 0, math.log(2)]])  # softmax .6 .3 .1 and .25 .25 .5
    one_r, U_c = t([1, 0], [0.5, 0.5], [0, 1]), t([0.5, 0.2], [0.25, 0.4], [0.25, 0.4])
    first, second, third = (torch.tensor([label]) for label in range(3))
    weighed = t([0.3, 0.075, 0.025], [0.05, 0.1, 0.2])
    for within, expected in (("softmax", weighed), ("log", weighed.log())):
        torch.testing.assert_close(stratified(logits, first, one_r, U_c, within)[0], expected[0])
        torch.testing.assert_close(stratified(logits, second, one_r, U_c, within)[0], expected.mean(0))
        torch.testing.assert_close(stratified(logits, third, one_r, U_c, within)[0], expected[1])
        diagonal = torch.stack([expected[0, 0], expected.mean(0)[1], expected[1, 2]])
        torch.testing.assert_close(self_consistent(logits, one_r, U_c, within)[0], diagonal)


def test_a_confident_owner_keeps_its_class_whatever_U_c_is_but_on_raw_logits():
    logits, owns = t([[8, 6, 0]]), t([1], [1], [1])
    U_c = t([0.2], [0.6], [0.2])  # 8 x .2 is below 6 x .6
    chosen = {name: int(stratified(logits, Y[:1], owns, U_c, name).argmax()) for name in ("U_c", "softmax", "log")}
    assert chosen == {"U_c": 1, "softmax": 0, "log": 0}
