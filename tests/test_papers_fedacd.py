"""FedACD's tables and figures as data."""

from paperlib import papers
from paperlib.papers.printed import printed
from paperlib.papers.scales import at_scale


def cells(name):
    return papers.TABLES["fedacd"][name].cells(1)


def test_every_printed_number_stands_in_exactly_one_table():
    names = (*papers.tables("fedacd"), *papers.figures("fedacd"))
    shown = [line for name in names for line in papers.lines(papers.spec("fedacd", name), "fedacd")]
    assert sorted(shown) == printed("fedacd").line.tolist()


def test_table_4_varies_clients_and_participation_alone():
    four = cells("T4")
    assert len(four) == 49 and len({c.key["row"] for c in four}) == 7
    of = {c.key["column"]: c.experiments[0] for c in four if c.key["row"] == "FedACD"}
    assert {column: (e.clients, e.sampled) for column, e in of.items()} == {
        "K=20, γ=0.2": (20, 4), "K=20, γ=0.4": (20, 8), "K=20, γ=0.6": (20, 12), "K=40, γ=0.4": (40, 16),
        "K=60, γ=0.4": (60, 24), "K=80, γ=0.4": (80, 32), "K=100, γ=0.4": (100, 40),
    }  # fmt: skip
    one = of["K=20, γ=0.4"]
    assert (one.dataset, one.alpha, one.local_epochs, one.model) == ("cifar100", 0.1, 5, "fedacd_cnn")
    assert all(e.replace(clients=20, sampled=8) == one for e in of.values())


def test_table_6_varies_local_epochs_alone():
    six = cells("T6")
    assert len(six) == 56 and len({c.key["row"] for c in six}) == 8
    of = {c.key["column"]: c.experiments[0] for c in six if c.key["row"] == "FedLC"}
    assert [(column, e.local_epochs) for column, e in of.items()] == [(f"E={n}", n) for n in range(3, 17, 2)]
    assert all(e.replace(local_epochs=5) == of["E=5"] for e in of.values())
    assert [at_scale(e, "smoke").local_epochs for e in of.values()] == [1, 2, 3, 3, 4, 5, 5]


def test_what_tables_4_and_6_repeat_of_table_1_are_the_same_runs():
    first = {c.key["row"]: c for c in cells("T1") if c.key["column"] == "CIFAR-100 β=0.1"}
    for name, column in (("T4", "K=20, γ=0.4"), ("T6", "E=5")):
        for cell in [c for c in cells(name) if c.key["column"] == column]:
            same = first[cell.key["row"]]
            assert (cell.printed, cell.experiments) == (same.printed, same.experiments)


def test_the_workflow_needs_no_runs():
    figure = papers.figure("fedacd", "F1", compute=False)
    assert figure.caption == "It needs no runs." and figure.data["where"].tolist()[::5] == ["server", "server"]
