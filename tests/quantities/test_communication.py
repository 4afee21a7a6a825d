"""What methods send, counted from their hooks."""

from paperlib.networks import build
from paperlib.runs.traffic import communication


def test_bytes_are_those_of_the_papers_formulas():
    table = communication("cnn", classes=10, width=0.1)
    m = 4 * build("cnn", (3, 32, 32), 10, 0.1).size
    assert table.loc["fedavg", ["first down", "first up", "later down", "later up"]].tolist() == [m] * 4
    assert table.loc["fedavg", "relative"] == 1
    assert table.loc["scaffold", ["first down", "later up"]].tolist() == [2 * m, 2 * m]
    gps = 4 * build("cnn", (3, 32, 32), 20, 0.1).size  # C more outputs
    prototypes, counts, participants = 4 * 10 * 51, 4 * 10, 8
    assert table.loc["fedgps", "first down"] == gps
    assert table.loc["fedgps", "later down"] == 2 * gps + prototypes + participants
    assert table.loc["fedgps", "later up"] == gps + prototypes + counts
    assert table.loc["fedgps_cf", "later down"] == gps + prototypes + participants
    assert table.loc["fedacd", "later up"] == m + 8 and table.loc["fedacd_base", "later up"] == m
    assert table.loc["fedimpro", "later down"] == m + 4 * 2 * 10 * 3 * 16 * 16
