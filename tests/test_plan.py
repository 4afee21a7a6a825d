"""What grids cost, before they are run."""

import pytest
import sizes

from paperlib import Experiment, papers
from paperlib.reports import plan
from paperlib.runs import cost


def test_the_longest_that_is_left_goes_to_whoever_is_free_first():
    assert plan.until_the_last([3, 5, 3, 4, 3], 2) == 10
    assert plan.until_the_last([3, 5, 3, 4, 3], 1) == 18
    assert plan.until_the_last([3, 5], 4) == 5
    assert plan.until_the_last([], 2) == 0


def test_what_is_finished_or_shipped_is_not_left():
    grids = plan.grids("gc_fed", "smoke", 1)
    assert grids["T5"] == papers.experiments("gc_fed", "T5", scale="smoke", seeds=1)
    assert len(grids["all"]) == len({e for name, runs in grids.items() if name != "all" for e in runs})
    new = papers.experiments("gc_fed", "T2", scale="smoke", seeds=9)[-2:]
    table = plan.sizes({"T2": grids["T2"], "new": new}, jobs=2)
    assert table.runs.tolist() == [4, 2] and table.left.tolist() == [0, 2] and table.core_hours["T2"] == 0
    assert table.samples["new"] == sum(map(cost.passes, new)) and table.core_hours["new"] > 0


def test_each_setting_of_a_grid_is_listed_with_what_a_budget_reduces_in_it():
    lines = plan.settings("gc_fed", "1e13", "T5", {"dataset": "cifar10"})
    assert len(lines) == 2 and [line.split(":")[0] for line in lines] == [
        "CIFAR-10, cnn, 5 of 100, E = 5", "CIFAR-10, cnn, 5 of 200, E = 5"
    ]  # fmt: skip
    assert plan.settings("gc_fed", "smoke", "T5") == plan.settings("gc_fed", "paper") == []


def test_operations_are_those_of_the_layers():
    """An MLP's forward pass is two operations per weight; backwards twice that, but for the input's gradient."""
    weights = [784 * 512, 512 * 256, 256 * 10]
    assert cost.step_operations("mlp", 1.0, (1, 28, 28), 10) == 2 * (3 * sum(weights) - weights[0])


def test_the_page_has_the_sizes_of_today():
    rows = {line.split(" | ")[0].strip("| "): line for line in sizes.PAGE.read_text().splitlines() if line[:2] == "| "}
    grids = {"GC-Fed": plan.grids("gc_fed"), "FedHydra": plan.grids("fedhydra"), "10,000 clients": {"all": sizes.LARGE}}
    for name, runs in ((name, grid["all"]) for name, grid in grids.items()):
        parts = cost.own_parts(runs)
        operations = sum(part * cost.operations(e) for e, part in parts.items())
        samples = sum(part * cost.passes(e) for e, part in parts.items())
        assert rows[name].startswith(
            f"| {name} | {len(runs):,} | {samples:.1e} | {operations:.1e} | {operations / sizes.GPU / 3600:,.0f} |"
        )


def test_a_client_with_few_samples_makes_no_full_batch():
    e = Experiment(dataset="mnist", model="mlp", clients=10, sampled=10, batch_size=100, train_size=500)
    assert cost.batch(e) == 50


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plan.grids("fedx"), "unknown paper 'fedx'"),
        (lambda: plan.grids("gc_fed", "large"), "unknown scale 'large'"),
        (lambda: plan.grids("gc_fed", "small", 0), "seeds is 0, but must be a whole number of at least 1"),
        (lambda: plan.sizes({}, 0), "jobs is 0, but must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
