"""The league and the duel: one rule for everybody, and no way to win without being better."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from paperlib import Experiment, duel, oneshot, run_many
from paperlib.cli import app
from paperlib.data import load
from paperlib.federated.simulator import simulate
from paperlib.methods import REGISTRY, FedAvg
from paperlib.methods.fedprox import FedProx
from paperlib.papers.citations import bibtex, paper
from paperlib.paths import PAPER_VALUES
from paperlib.reports import league
from paperlib.runs.check import check_all
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.runs.profile import CallingThread

SHORT = league.SETTINGS["digits"].replace(rounds=6, train_size=300, clients=6, sampled=3, local_epochs=1)


@pytest.fixture
def short(tmp_path, monkeypatch):
    """A league of FedAvg and FedProx in a setting of six rounds, shipped in a folder of its own; the way to play."""
    monkeypatch.setattr(league, "SETTINGS", {"digits": SHORT})
    monkeypatch.setattr("paperlib.reports.duel.SETTINGS", league.SETTINGS)
    monkeypatch.setattr(league, "VALIDATION", 100)

    def play(experiments):
        return run_many(experiments, store=tmp_path / "runs")

    tests = league.tuned(["fedavg", "fedprox"], "digits", play)
    shipped = {method: play(es) for method, es in tests.items()}
    monkeypatch.setattr("paperlib.reports.duel.shipped", lambda setting: shipped)
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))
    return SimpleNamespace(play=play, shipped=shipped, store=tmp_path / "runs")


@pytest.fixture
def register(monkeypatch):
    def register(name, kind):
        monkeypatch.setitem(REGISTRY, name, kind)

    return register


def pretend(score):
    """Return a way to play in which an experiment has a score, and no training takes place."""
    played = []

    def play(experiments):
        played.append(list(experiments))
        return [SimpleNamespace(summary={"failed": False, "last10_accuracy": score(e)}) for e in experiments]

    return play, played


# -- the rule


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_nine_candidates_are_halved_on_validation_images_and_the_best_plays_on_test_images(method):
    play, played = pretend(lambda e: -abs(np.log(e.lr / 0.06)) - abs(e.method_options.get("mu", 0.01) - 0.01))
    (tests,) = league.tuned([method], "digits", play).values()
    setting = league.SETTINGS["digits"]
    assert [len(es) for es in played] == [9, 3]
    assert {e.rounds for e in played[0]} == {setting.rounds // 3} and {e.rounds for e in played[1]} == {setting.rounds}
    assert {(e.evaluate_on, e.test_size, e.seed, e.partition_seed) for es in played for e in es} == {
        ("validation", 400, 100, 100)
    }
    lr = {"fedavg": 0.06839, "fedprox": 0.09}[method]  # the nearest to .06 of nine rates, and of three
    mu = {"fedprox": {"mu": 0.01}}.get(method, {})
    expected = setting.replace(method=method, method_options=mu, lr=lr)
    assert tests == [expected.replace(seed=s, partition_seed=s) for s in range(5)]


def test_a_long_run_decides_among_the_best_three_of_the_short_ones():
    order = sorted(league.candidates("fedavg", "digits"), key=lambda e: e.lr)
    short = {e.lr: n for n, e in enumerate(order)}  # the larger, the better, but in the end the third
    play, _ = pretend(lambda e: short[e.lr] if e.rounds < 45 else -short[e.lr])
    assert league.tuned(["fedavg"], "digits", play)["fedavg"][0].lr == order[-3].lr


def test_a_candidate_that_fails_is_the_last():
    lost = {"failed": True, "last10_accuracy": None}
    won = {"failed": False, "last10_accuracy": 1.0}

    def play(experiments):
        return [SimpleNamespace(summary=won if e.lr == 0.01 else lost) for e in experiments]

    assert league.tuned(["scaffold"], "digits", play)["scaffold"][0].lr == 0.01


@pytest.mark.parametrize(
    "grid",
    [[{"mu": n / 10} for n in range(1, 5)], [{"mu": n / 10} for n in range(9)], [{"mu": 1.0, "a": 1, "b": 1}]],
)
def test_more_candidates_or_options_than_everybody_has_are_refused(grid, register, tmp_path):
    register("greedy", type("Greedy", (FedProx,), {"grid": grid}))
    with pytest.raises(ValueError, match="the grid of greedy is .*everybody has 9 candidates"):
        duel("greedy", store=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_every_declared_grid_has_nine_candidates_that_can_be_played():
    import newer_methods  # noqa: F401

    for method in REGISTRY:
        if method != "fixbn":
            es = league.candidates(method, "digits")
            assert len({e.digest for e in es}) == 9
            check_all(es)
    assert set(json.loads((league.REFERENCE / "league.json").read_bytes())) <= set(REGISTRY)


# -- validation images


def test_the_validation_images_are_training_images_that_nobody_trains_on():
    e = Experiment(dataset="digits", clients=10, train_size=700, test_size=200, evaluate_on="validation")
    ours, whole = dataset_of(e), load("digits", train_size=900)
    assert torch.equal(torch.cat([ours.train_images, ours.test_images]), whole.train_images)
    assert torch.equal(torch.cat([ours.train_labels, ours.test_labels]), whole.train_labels)
    assert len(ours.train_labels) == 700 and e.digest != e.replace(evaluate_on="test").digest
    with pytest.raises(ValueError, match="train_size and test_size must be numbers of images"):
        check_all([e.replace(test_size=None)])


def tensors_in(thing, seen):
    """Yield the tensors that can be reached from an object by attributes and entries."""
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type | None):
        return
    seen[id(thing)] = thing
    if isinstance(thing, torch.Tensor):
        yield thing
    inner = list(thing.values()) if isinstance(thing, dict) else list(thing) if isinstance(thing, list | tuple) else []
    for value in inner + list(getattr(thing, "__dict__", {}).values()):
        yield from tensors_in(value, seen)


def test_a_method_cannot_reach_the_test_images(register):
    reached = []

    class Curious(FedAvg):
        def end(self, *given):
            reached.extend(tensors_in([self, *given], {}))
            return super().end(*given)

    register("curious", Curious)
    e = SHORT.replace(method="curious", rounds=1)
    data = dataset_of(e)
    list(simulate(*prepare(e, data), CallingThread()))
    storages = {tensor.untyped_storage().data_ptr() for tensor in reached}
    assert data.train_images.untyped_storage().data_ptr() in storages  # it reaches far
    for hidden in (data.test_images, data.test_labels):
        assert hidden.untyped_storage().data_ptr() not in storages


# -- standings


def runs_of(scores):
    """Return runs with these scores, as far as `standings` looks at them."""
    history = pd.DataFrame({"seconds": [1.0], "bytes_up": [1.0], "bytes_down": [1.0]})
    e = SHORT
    return [
        SimpleNamespace(summary={"failed": False, "last10_accuracy": s}, history=history, experiment=e) for s in scores
    ]


def test_an_equal_method_wins_in_few_leagues_and_no_league_of_equals_has_many_winners():
    """FedAvg with other streams: a draw like its own."""
    stream, ours, any_wins = np.random.default_rng(0), 0, 0
    for _ in range(200):
        partition = stream.normal(80, 3, 5)  # the same for all
        scores = {"fedavg": partition + stream.normal(0, 1, 5)}
        scores |= {f"m{n}": partition + stream.normal(0, 1, 5) for n in range(5)}
        wins = league.standings({name: runs_of(values) for name, values in scores.items()}, {}).wins
        ours, any_wins = ours + wins["m0"], any_wins + wins.any()
    assert ours <= 10 and any_wins <= 10


def test_a_better_method_wins_and_the_numbers_are_those_of_paired_differences():
    seeds = np.array([70.0, 80.0, 75.0, 85.0, 90.0])
    gain = np.array([5.0, 5.2, 4.9, 5.1, 4.8])
    runs = {"fedavg": seeds, "better": seeds + gain, "worse": seeds - gain, "equal": seeds}
    table = league.standings({name: runs_of(values) for name, values in runs.items()}, {})
    assert list(table.index) == ["better", "fedavg", "equal", "worse"]
    assert table.wins.to_dict() == {"better": True, "fedavg": False, "equal": False, "worse": False}
    half = 2.7764451052 * gain.std(ddof=1) / 5**0.5  # Student's t of four degrees of freedom
    row = table.loc["better"]
    assert [row["lead"], row["lead low"], row["lead high"]] == pytest.approx([5.0, 5.0 - half, 5.0 + half])
    assert table.loc["equal", "p"] == 1 and table.loc["worse", "p"] < 0.05


def test_holm_multiplies_by_the_number_of_hypotheses_that_are_left():
    corrected = league.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": float("nan")})
    assert corrected == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 1.0})


# -- the BibTeX of its rows

REQUIRED = {
    "inproceedings": {"author", "title", "booktitle", "year"},
    "article": {"author", "title", "journal", "year"},
    "misc": {"author", "title", "year"},
}


def entries(text):
    """Return key -> fields of BibTeX entries; each has a known type, balanced braces, and what its type needs."""
    parsed = {}
    for entry in filter(None, text.split("\n\n")):
        kind, key, body = re.fullmatch(r"@(\w+)\{(\w+),\n(.*)\}\n?", entry, re.DOTALL).groups()
        fields = dict(re.fullmatch(r"  (\w+) = \{(.+)\},", line).groups() for line in body.splitlines())
        for value in fields.values():
            depth = np.cumsum([(sign == "{") - (sign == "}") for sign in value])
            assert depth.min() >= 0 and depth[-1] == 0, value
        assert fields.keys() >= REQUIRED[kind] and key not in parsed
        assert fields.keys() <= REQUIRED[kind] | {"volume", "pages"} and re.fullmatch(r"20\d\d", fields["year"])
        parsed[key] = fields
    return parsed


def test_every_method_has_its_paper_in_bibtex_as_its_docstring_cites_it():
    import newer_methods

    known = {name: kind for name, kind in REGISTRY.items() if kind.__module__.startswith(("paperlib", "newer_methods"))}
    known |= oneshot.REGISTRY
    assert set(newer_methods.__all__) <= set(known)
    parsed = entries((PAPER_VALUES / "methods.bib").read_text(encoding="utf-8"))
    assert list(parsed) == list(entries(bibtex(parsed))) and set(parsed) == set(known)
    for name, kind in known.items():
        title = re.sub("[{}]", "", parsed[name]["title"]).lower()
        cited = re.fullmatch(r"(?:(.*?) (\d{4}), )?(.*)", paper(kind))
        assert title.startswith(cited[3].lower())
        first = parsed[name]["author"].split(",")[0].split(" and ")[0]
        assert cited[1] is None or (first, parsed[name]["year"]) == (re.split(" et al|, | and ", cited[1])[0], cited[2])


def test_a_method_of_ones_own_has_no_entry():
    assert list(entries(bibtex(["moon", "my_method", "gc_fed"]))) == ["gc_fed", "moon"] and bibtex(["mine"]) == ""


# -- the duel


def test_a_method_under_another_name_ties_with_the_same_bits(short, register):
    class Same(FedProx):
        grid = league.grid_of("fedprox")

    register("same", Same)
    table = duel("same", store=short.store, progress=False)
    assert set(table.index) == {"fedavg", "fedprox", "same"}
    assert list(entries(table.attrs["bibtex"])) == ["fedavg", "fedprox"]
    columns = ["accuracy", "low", "high", "lead", "lr", "options", "traffic", "worst decile", "spread"]
    assert table.loc["same", columns].tolist() == table.loc["fedprox", columns].tolist()
    (mine, theirs) = (
        short.play([short.shipped["fedprox"][0].experiment.replace(method=m)])[0] for m in ("same", "fedprox")
    )
    assert torch.equal(mine.parameters, theirs.parameters)


def test_the_command_places_the_method_of_a_file_and_answers_in_json(short, tmp_path, monkeypatch):
    (tmp_path / "my_method.py").write_text(
        "from paperlib.methods import REGISTRY, FedAvg\n\n"
        "class Half(FedAvg):\n"
        "    def end(self, theta_0, theta, shared, own, visit):\n"
        "        upload, own = super().end(theta_0, theta, shared, own, visit)\n"
        "        return {**upload, 'delta': upload['delta'] / 2}, own\n\n"
        "REGISTRY['half'] = Half\n"
    )
    try:
        result = CliRunner().invoke(app, ["duel", str(tmp_path / "my_method.py"), "--jobs", "1", "--json"])
    finally:
        REGISTRY.pop("half", None)
    answer = json.loads(result.stdout)
    rows = {row["method"]: row for row in answer["tables"][0]["rows"]}
    assert list(entries(answer["notes"][1])) == ["fedavg", "fedprox"]
    assert result.exit_code == 0 and set(rows) == {"half", "fedavg", "fedprox"}
    assert rows["half"]["traffic"] == 1 and rows["half"]["accuracy"] != rows["fedavg"]["accuracy"]


@pytest.mark.parametrize(
    ("text", "sentence"), [("x = 1", "registers no method"), ("1 / 0", "cannot be run (ZeroDivisionError")]
)
def test_a_file_without_a_method_is_refused_in_a_sentence(text, sentence, tmp_path):
    (tmp_path / "file.py").write_text(text)
    result = CliRunner().invoke(app, ["duel", str(tmp_path / "file.py")])
    assert result.exit_code == 2 and sentence in " ".join(result.stderr.split())
