"""Every printed number and deviation stands in the text of its own table, as often as it is entered."""

import json
from collections import Counter

import pytest

from paperlib.papers import TITLES
from paperlib.papers.printed import printed

from .printed.extract import FILE, numbers, tables

IN_PRINT = json.loads(FILE.read_text())


@pytest.mark.parametrize("paper", TITLES)
def test_every_entered_number_stands_in_its_table(paper):
    table = printed(paper)
    entered = table[table.table.str.fullmatch(r"T\d+") & ~table.note.str.contains("from text", na=False)]
    absent = []
    for name, rows in entered.groupby("table"):
        there: Counter[float] = Counter()
        for number, count in IN_PRINT[paper].get(name, {}).items():
            if number.count(".") < 2:
                there[float(number)] += count
        for column in ("value", "std"):
            wanted = Counter(rows[column].dropna().astype(float))
            absent += [(name, column, value, count) for value, count in wanted.items() if there[value] < count]
    assert not absent


def test_the_lists_hold_all_tables_with_numbers():
    assert {paper: sum(map(bool, IN_PRINT[paper].values())) for paper in TITLES} == dict(
        fedgps=21, fedacd=9, gc_fed=8, fedhydra=18, fedimpro=11
    )


def test_numbers_are_read_as_they_are_printed():
    text = "Table 1: a\nx 84.2184.21 90.31\\mathbf{90.31} −3.5 1,000 7.\n81.75±1.03\nFigure 2: b\n5 6\nTable 2. c\n8"
    assert tables("gc_fed", text) == {
        "T1": {"-3.5": 1, "1": 1, "1.03": 1, "1000": 1, "7": 1, "81.75": 1, "84.21": 1, "90.31": 2},
        "T2": {"2": 1, "8": 1},
    }
    assert numbers("11.511.5 340340") == {"11.5": 1, "340": 1, "340340": 1}
