"""Every method beside its plain loop, on the same batches and draws."""

import pytest

from paperlib.data import load
from paperlib.federated.simulator import sampled_clients
from paperlib.methods import REGISTRY
from paperlib.runs.prepare import parts_of
from tests.references import CASES, difference

BOUND = 5e-12  # rounding, carried through the rounds of a run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_is_that_of_the_reference(case):
    assert difference(case) < BOUND


# One case of every method that has an option to turn, the first float.
TURNED = {
    case.method: (case, name)
    for case in reversed(CASES)
    for name, value in reversed(case.options.items())
    if isinstance(value, float) and value
}


@pytest.mark.parametrize(("case", "option"), TURNED.values(), ids=TURNED)
def test_another_value_of_an_option_is_told_apart(case, option):
    """So that a difference of zero means something."""
    assert difference(case, **{option: 0.9 * case.options[option]}) > 1e-6


def test_every_method_has_a_reference():
    ours = {name for name, kind in REGISTRY.items() if kind.__module__.startswith(("paperlib.", "newer_methods."))}
    assert {case.method for case in CASES} == ours


def test_the_settings_are_hard_enough():
    """Unlike sizes and labels, clients that come and go, short batches."""
    e = CASES[0].experiment
    counts = parts_of(e, load(e.dataset, train_size=e.train_size, test_size=e.test_size)).counts()
    sizes = counts.sum(1)
    assert sizes.max() > 1.5 * sizes.min() and (counts == 0).any() and (sizes % e.batch_size).any()
    cohorts = [set(sampled_clients(e, t)) for t in range(1, e.rounds + 1)]
    assert cohorts[0] & cohorts[1] and cohorts[0] & cohorts[2] - cohorts[1] and cohorts[1] - cohorts[0]
    assert e.momentum == 0.9 and e.weight_decay > 0 and e.lr_decay < 1
