"""The calibration of the reductions: equal cost, equal methods, and scores that follow from the runs."""

import shutil
from pathlib import Path

import calibration
import pandas as pd
import pytest
from calibration import criteria, scores
from ladders import COLUMNS, FULL, everything, experiments

from paperlib import papers
from paperlib.papers.collection import finished
from paperlib.papers.judging import CALIBRATED, OF_CALIBRATED
from paperlib.papers.printed import rows_of
from paperlib.papers.scales import BUDGETS
from paperlib.runs import cost
from paperlib.runs.store import Run

NAME = "GC-Fed T5, EMNIST, full length"
OF_FEDAVG = "FedGPS T1, CIFAR-10, scenario 2, FedAvg at scale small"


def played(e, accuracy, failed=False):
    history = pd.DataFrame({"round": range(1, 21), "test_accuracy": float(accuracy)})
    summary = {"failed": failed, "best_accuracy": float(accuracy), "dataset_source": "a test", "version": "0"}
    return Run(e, summary, history)


@pytest.fixture(scope="module")
def grid():
    return experiments(NAME)


def test_all_ladders_of_a_column_keep_to_one_budget_and_its_local_steps(grid):
    full = grid.pop(FULL)
    budget = COLUMNS[NAME].part * cost.operations(full["fedavg"][0])
    for ladder, methods in grid.items():
        assert 0.6 * budget < cost.operations(methods["fedavg"][0]) <= budget, ladder
        for method, runs in methods.items():
            for e, printed in zip(runs, full[method], strict=True):
                assert (e.local_epochs, e.lr, e.sampled, e.seed) == (5, 0.01, 5, printed.seed)
                fewer = ladder == "fewer samples, fewer steps"
                assert (e.batch_size / e.sample_share == pytest.approx(50)) != fewer
    grid[FULL] = full


def test_scores_are_correlations_with_the_truth_and_the_regime(grid):
    methods = COLUMNS[NAME].methods
    level = {method: 60.0 - 5 * place for place, method in enumerate(methods)}
    runs = {e: played(e, level[m]) for m, es in grid[FULL].items() for e in es}
    runs |= {e: played(e, level[m] / 2) for m, es in grid["narrower"].items() for e in es}
    runs |= {e: played(e, -level[m], m == "gc_fed") for m, es in grid["fewer rounds"].items() for e in es}
    table = scores(NAME, runs).set_index("ladder")
    assert list(table.index) == ["fewer rounds", "narrower"]  # the others have not been run
    assert table.correlation["narrower"] == table.least["narrower"] == pytest.approx(1)
    assert table.regime["narrower"] == pytest.approx(0.5)
    # reversed but for the best, which failed and counts as 0, above all negative numbers
    assert table.correlation["fewer rounds"] == pytest.approx(-1 + 6 * 50 / 210, abs=1)
    assert table.correlation["fewer rounds"] < 0


def test_a_failed_run_counts_as_nothing(grid):
    runs = {e: played(e, 50, m == "gc_fed") for m, es in (*grid[FULL].items(),) for e in es}
    runs |= {e: played(e, 50 - 5 * i, m == "gc_fed") for i, (m, es) in enumerate(grid["narrower"].items()) for e in es}
    runs[grid[FULL]["feddyn"][0]] = played(grid[FULL]["feddyn"][0], 20)
    assert scores(NAME, runs).correlation.notna().all()


def test_a_one_shot_column_has_one_cost_and_is_scored_without_the_order():
    name = "FedHydra T1, MNIST, 0.3"
    grid = experiments(name)
    dearest, cheapest = (f(cost.operations(m["fedhydra"][0]) for m in grid.values()) for f in (max, min))
    assert 0.95 * BUDGETS["small"] < cheapest <= dearest <= 1.001 * BUDGETS["small"]
    ladder = "a tenth of the local epochs"
    runs = {}
    for seed, e in enumerate(grid[ladder]["fedhydra"]):
        assert (e.method_options.get("generator_steps", 30), e.alpha, e.seed) == (30, 0.3, seed)
        last = {"teacher_as_asked": 90.0 + seed, "agreement": 80.0, "test_accuracy": 70.0, "stratified_accuracy": 75.0}
        losses = {f"client_{k}_loss": 0.1 * k for k in range(5)}
        before = dict.fromkeys(last | losses, 0.0)
        runs[e] = Run(e, {"dataset_source": "a test", "version": "0"}, pd.DataFrame([before, last | losses]))
    table = criteria(name, runs)
    assert table.ladder.tolist() == [ladder]
    row = table.iloc[0]
    assert (row.seeds, row.as_asked, row.agreement, row.student, row.teacher) == (3, 91, 80, 70, 75)
    assert row.client_loss == pytest.approx(0.2)
    page = calibration.block(runs)
    assert f"| {ladder} | " in page and "| 0.2000 | 91.0 | 80.0 | 70.0 | 75.0 |" in page


@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if not column.by_criteria])
def test_methods_stand_in_the_printed_order(name):
    printed = calibration._printed(COLUMNS[name])
    assert tuple(printed.sort_values(ascending=False).index) == COLUMNS[name].methods


def test_a_column_that_has_begun_says_how_far_it_is(grid):
    runs = {e: played(e, 50 - 5 * i) for i, es in enumerate(grid["narrower"].values()) for e in es}
    planned = sum(len(es) for methods in grid.values() for es in methods.values())
    first = dict([next(iter(runs.items()))])
    assert f"### {NAME}\n\n1 of {planned} runs so far.\n\n###" in calibration.block(first)
    runs |= {e: played(e, 50 - 5 * i) for i, es in enumerate(grid[FULL].values()) for e in es}
    page = calibration.block(runs)  # one ladder is whole, and the truth
    assert f"### {NAME}\n\n{len(runs)} of {planned} runs so far.\n\n| ladder |" in page


def test_a_column_of_fedavg_alone_has_a_regime_and_no_order():
    grid = experiments(OF_FEDAVG)
    runs = {e: played(e, 39.565) for es in grid.values() for e in es["fedavg"]}  # print has 79.13
    assert scores(OF_FEDAVG, runs).regime.tolist() == [pytest.approx(0.5)] * len(grid)
    page = calibration.block(runs)
    assert all(f"| {ladder} | " in page for ladder in grid)
    assert page.count(" | - | 0.50 | 3.0e+13 |") == len(grid)


def test_that_column_has_the_setting_of_scale_small():
    column = COLUMNS[OF_FEDAVG]
    only = {**column.only, "method": "fedavg"}
    small = papers.experiments(column.paper, column.table, scale="small", seeds=1, only=only)
    assert small[0] in everything([OF_FEDAVG])


def test_the_page_in_the_docs_is_made_of_the_shipped_runs(tmp_path):
    page = Path(shutil.copy(calibration.PAGE, tmp_path))
    assert calibration.write_page(page).read_text() == calibration.PAGE.read_text()


def test_the_page_has_every_column_and_an_unknown_one_is_refused():
    text = calibration.block({})
    assert all(f"### {name}" in text for name in COLUMNS) and text.count("Not run yet.") == len(COLUMNS)
    with pytest.raises(ValueError, match="unknown column 'nothing'"):
        everything(["nothing"])


def test_the_networks_whose_reduction_kept_the_order_are_those_of_the_scores():
    """Every printed network has its best ladder of a column set aside in data/paper/calibrated.csv."""
    for row in rows_of(CALIBRATED, OF_CALIBRATED, dict):
        column = COLUMNS[row["column"]]
        needed = [e for methods in experiments(row["column"]).values() for es in methods.values() for e in es]
        found = scores(row["column"], finished(needed, store=None)).set_index("ladder").correlation
        assert f"{found.max():.2f}" == f"{float(row['correlation']):.2f}" and found.idxmax() == row["ladder"]
        printed = papers.experiments(column.paper, column.table, scale="paper", seeds=1, only=column.only)
        assert {e.model for e in printed} == {row["model"]}
