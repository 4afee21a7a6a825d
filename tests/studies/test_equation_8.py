"""The tables on FedHydra's Equation 8: those of today's runs, and differences of equal seeds."""

import equation_8
import pandas as pd
from shared import lead

from paperlib.reports.markdown import write_between


def test_the_page_has_the_tables_of_today(tmp_path):
    page = tmp_path / "fidelity.md"
    page.write_text(equation_8.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_between(page, "equation 8", equation_8.tables())
    assert page.read_text(encoding="utf-8") == equation_8.PAGE.read_text(encoding="utf-8")


def test_every_column_has_the_equation_the_uniform_factor_and_its_rivals():
    ours, printed = equation_8.accuracies()
    assert set(ours.index) == set(printed.index) and ours.notna().all(axis=None)
    rows = set(ours.index.get_level_values(0))
    assert {"as printed (Eq. 8)", equation_8.UNIFORM, *equation_8.RIVALS} <= rows and len(ours) == 4 * len(rows)


def test_a_lead_is_that_of_equal_seeds():
    ours, other = pd.Series({0: 5.0, 1: 7.0, 2: None}), pd.Series({2: 1.0, 1: 4.0, 0: 4.0})
    assert lead(ours, other) == "+2.0 [-10.7, +14.7]"  # 1 and 3: mean 2, half width 12.706
    assert lead(ours[:1], other) == ""
