"""The page on what a protocol decides: its tables are those of today, and its power is that of simulated tests."""

import numpy as np
import protocol
import pytest
from scipy import stats

from paperlib.quantities.curves import last_mean


def test_the_page_has_the_tables_of_today(tmp_path):
    page = tmp_path / "protocol.md"
    page.write_text(protocol.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    protocol.write_page(page)
    assert page.read_text(encoding="utf-8") == protocol.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("gap", "deviation", "seeds"), [(0.0, 1.0, 3), (3.0, 1.7, 3), (3.0, 1.7, 5), (5.0, 1.0, 3)])
def test_power_is_the_share_of_simulated_tests_that_find_the_gap(gap, deviation, seeds):
    draw = np.random.default_rng(0)
    ours, theirs = (draw.normal(mean, deviation, (20_000, seeds)) for mean in (gap, 0.0))
    found = stats.ttest_rel(ours, theirs, axis=1).pvalue < protocol.LEVEL
    assert protocol.power(gap, deviation, seeds) == pytest.approx(found.mean(), abs=0.012)


def test_a_lead_that_dwarfs_the_deviation_is_always_found():
    assert protocol.power(50.0, 0.1, 5) == pytest.approx(1)


def test_no_run_is_better_in_its_last_ten_rounds_than_in_its_best():
    for name in protocol.COLUMNS:
        runs = protocol.readings(name)
        assert len(runs) and (runs.best >= runs["last"]).all()
    assert last_mean(np.array([1.0, 5.0, 3.0]), 10) == 3.0


def test_both_papers_print_what_is_compared_and_each_setting_once():
    shared = protocol.shared_settings()
    assert len(shared) and not shared.duplicated(protocol.SAME).any() and (shared["min"] <= shared["max"]).all()


def test_a_number_is_inside_only_between_the_lowest_and_the_highest():
    rows = list(protocol.shared_rows())
    for *_, value, between, verdict in rows:
        low, high = map(float, between.split(" to "))
        assert verdict == ("inside" if low <= float(value) <= high else "outside")
    assert {row[-1] for row in rows} == {"inside", "outside"}
