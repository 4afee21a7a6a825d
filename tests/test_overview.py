"""The methods side by side: what is said of them is counted, cited or tried, and not typed."""

import re
from dataclasses import dataclass

import pytest
import torch
from typer.testing import CliRunner

from paperlib import papers
from paperlib.cli import app
from paperlib.methods import REGISTRY, FedAvg
from paperlib.oneshot import is_one_shot
from paperlib.papers.specs import needed
from paperlib.reports import method_table


@pytest.fixture(scope="module")
def table():
    return method_table.methods()


def test_memory_and_traffic_are_those_of_the_algorithms(table):
    columns = ["client_memory", "server_memory", "server_memory_per_client", "up", "down"]
    counted = {name: table.loc[name, columns].tolist() for name in table.index}
    assert counted["fedavg"] == counted["fedprox"] == counted["gc_fed"] == [0, 0, 0, 1, 1]
    assert counted["fedavgm"] == [0, 1, 0, 1, 1] and counted["fedadam"] == [0, 2, 0, 1, 1]
    assert counted["scaffold"] == [1, 1, 0, 2, 2]
    assert counted["fedvarp"] == [1, 1, 0, 1, 1]  # the clients keep their last updates, the server the mean
    assert counted["fedmr"] == [0, 0, 1, 1, 1]  # one model for each client of a round
    assert counted["fedlesam"] == [1, 0, 0, 1, 1]
    assert counted["nucfl"] == [0, 1, 0, 1, 2]
    assert table.round(2).loc["fedgps", ["up", "down"]].tolist() == [1, 2]
    assert table.round(2).loc["fedgps_cf", ["client_memory", "up", "down"]].tolist() == [2, 1, 1]
    assert 1 < table.loc["fedimpro", "up"] == table.loc["fedimpro", "down"] < 1.1  # statistics of the features


def test_every_method_has_a_source_and_says_what_it_changes(table):
    ours = [name for name in table.index if REGISTRY[name].__module__.startswith("paperlib")]
    assert (table.paper[ours] != "").all() and (table.changes[ours] != "").all()
    assert table.paper["fedprox"] == "Li et al. 2020, Federated optimization in heterogeneous networks"
    assert table.changes["fedprox"] == "Local weights are kept near the global ones."
    assert table.changes["local_gc"] != table.changes["gc_fed"]  # of one module


def test_every_method_of_the_papers_tables_is_there_with_its_tables(table):
    assert table.tables["fedvarp"] == "GC-Fed T4 T5 T6"
    assert "GC-Fed T4 T5 T6 T7" in table.tables["fedsol"]  # in Table 7 something is wrapped around it
    for paper, specs in papers.TABLES.items():
        for name, spec in specs.items():
            for e in (e for e in needed(spec, 1) if not is_one_shot(e)):
                of = dict(part.split(" ", 1) for part in table.tables[e.method].split(", "))
                assert name in of[papers.TITLES[paper]].split()


def test_a_card_has_options_hooks_and_the_combinations_that_are_refused():
    card = method_table.card("gc_fed")
    assert card.options == {"mean": "Cout", "vector_params": "center", "border": "classifier"}
    assert {"gradient", "aggregate"} <= set(card.hooks) and "loss" not in card.hooks
    assert not any("FedProx" in why for why in card.refused)
    assert any("GCFed" in why and "LocalGC" in why for why in card.refused)
    text = method_table.card("fedgps").text()
    assert "lambda_g = 0.5" in text and "FedGPS cannot be wrapped around FedDecorr, whose loss it would not see" in text


def test_a_method_of_the_users_own_stands_in_the_table(monkeypatch):
    @dataclass(kw_only=True)
    class Remembering(FedAvg):
        """Clients keep half a model."""

        def end(self, theta_0, theta, shared, own, visit):
            upload, _ = super().end(theta_0, theta, shared, own, visit)
            return upload, {"half": torch.zeros(len(theta) // 2)}

    monkeypatch.setitem(REGISTRY, "remembering", Remembering)
    for name in set(REGISTRY) - {"fedavg", "remembering"}:
        monkeypatch.delitem(REGISTRY, name)
    monkeypatch.setattr(method_table, "tables", lambda: {})
    row = method_table.methods().loc["remembering"]
    assert (row.changes, row.client_memory, row.tables) == ("Clients keep half a model.", 0.5, "")


@pytest.mark.parametrize("width", ["80", "220"])
def test_the_command_shows_the_table_at_any_width(monkeypatch, table, width):
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(method_table, "methods", lambda: table)
    answer = CliRunner().invoke(app, ["methods"])
    assert answer.exit_code == 0
    lines = answer.output.splitlines()
    first = {row[0]: row for row in (re.split(" {2,}", line.strip()) for line in reversed(lines))}
    assert first["scaffold"][1:5] == ["1", "1", "2", "2"] and set(table.index) <= set(first)
    assert "…" not in answer.output
    assert all(len(line) <= int(width) for line in lines if line != method_table.NOTE)


def test_the_command_shows_one_method_or_says_what_there_is():
    assert "c_scale = '1/N'" in CliRunner().invoke(app, ["methods", "scaffold"]).output
    answer = CliRunner().invoke(app, ["methods", "scafold"])
    assert answer.exit_code == 2 and "unknown method 'scafold' (did you mean 'scaffold'" in answer.output
