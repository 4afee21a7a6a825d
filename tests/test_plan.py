"""What grids cost, before they are run."""

import pytest

from paperlib import cost, papers, plan


def test_the_longest_that_is_left_goes_to_whoever_is_free_first():
    assert plan.until_the_last([3, 5, 3, 4, 3], 2) == 10
    assert plan.until_the_last([3, 5, 3, 4, 3], 1) == 18
    assert plan.until_the_last([3, 5], 4) == 5
    assert plan.until_the_last([], 2) == 0


def test_what_is_finished_or_shipped_is_not_left():
    grids = plan.grids("gc_fed", "small", 2)
    assert grids["T5"] == papers.experiments("gc_fed", "T5", scale="small", seeds=2)
    assert len(grids["all"]) == len({e for name, runs in grids.items() if name != "all" for e in runs})
    table = plan.sizes({"T2": grids["T2"], "T8": grids["T8"][:2]}, jobs=2)
    assert table.runs.tolist() == [8, 2] and table.left["T2"] == 0 and table.core_hours["T2"] == 0
    assert table.samples["T8"] == sum(map(cost.passes, grids["T8"][:2]))


def test_operations_are_those_of_the_layers():
    """An MLP's forward pass is two operations per weight; backwards twice that, but for the input's gradient."""
    weights = [784 * 512, 512 * 256, 256 * 10]
    assert cost.step_operations("mlp", 1.0, (1, 28, 28), 10) == 2 * (3 * sum(weights) - weights[0])


def test_the_page_has_the_sizes_of_today():
    rows = {line.split(" | ")[0].strip("| "): line for line in plan.PAGE.read_text().splitlines() if line[:2] == "| "}
    for name, runs in (("GC-Fed", plan.grids("gc_fed")["all"]), ("10,000 clients", plan.LARGE)):
        operations = sum(map(cost.operations, runs))
        assert rows[name].startswith(
            f"| {name} | {len(runs):,} | {sum(map(cost.passes, runs)):.1e} | {operations:.1e} "
            f"| {operations / plan.GPU / 3600:,.0f} |"
        )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plan.grids("fedx"), "unknown paper 'fedx'"),
        (lambda: plan.grids("gc_fed", "large"), "unknown scale 'large'"),
        (lambda: plan.grids("gc_fed", "small", 0), "seeds is 0, but must be a whole number of at least 1"),
        (lambda: plan.sizes({}, 0), "jobs is 0, but must be at least 1"),
    ],
)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
