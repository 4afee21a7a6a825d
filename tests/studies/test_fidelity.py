"""docs/fidelity.md says what the code and the data files say now."""

import shutil

import fidelity

from paperlib import oneshot
from tests.references import CASES


def test_the_page_is_up_to_date(tmp_path):
    """But for the differences themselves, whose last bits are the machine's: `test_references` bounds them."""
    page = shutil.copy(fidelity.PAGE, tmp_path / "fidelity.md")
    fidelity.write_page(fidelity.written(), page)
    assert page.read_text() == fidelity.PAGE.read_text()


def test_every_method_of_many_rounds_has_a_difference_in_the_page():
    written = fidelity.written()
    assert set(written) == {case.method for case in CASES}
    assert max(written.values()) <= -12 and min(written.values()) >= -16


def test_differences_are_rounded_up_and_the_largest_of_a_method_counts(monkeypatch):
    values = {case.name: 3e-15 for case in CASES} | {CASES[1].name: 2e-13, CASES[-1].name: 0.0}
    monkeypatch.setattr(fidelity, "difference", lambda case: values[case.name])
    found = fidelity.measured()
    assert found["fedavg"] == -12 and found["fedprox"] == -14


def test_every_method_has_one_line_and_every_code_a_commit():
    lines = fidelity.rows("methods")
    assert sorted(line["method"] for line in lines) == sorted({case.method for case in CASES} | set(oneshot.REGISTRY))
    for line in lines:
        codes, commits = line["code"].split("; "), line["commit"].split("; ")
        assert len(codes) == len(commits) and all(bool(a) == bool(b) for a, b in zip(codes, commits, strict=True))
