"""Hyperparameters come from one file with their origin, and a user can replace any of them."""

import json

import pytest

from paperlib import papers, revisions
from paperlib.papers import settings, shipped_runs
from paperlib.papers.settings import FILE, read

PAPERS = ("fedgps", "fedacd", "gc_fed", "fedhydra", "fedimpro")


def only(paper, name, overrides=None, **fields):
    found = papers.experiments(paper, name, scale="paper", seeds=1, overrides=overrides)
    (e, *_) = [e for e in found if all(getattr(e, k) == v for k, v in fields.items())]
    return e


def test_runs_of_the_file_are_the_ones_that_were_shipped(monkeypatch):
    """Digests from before there was the file, where no setting has been corrected since: nothing was lost or added."""
    pinned = {
        ("fedgps", "T1", "fedlesam"): "07aa9643b3e107ab", ("fedimpro", "T1", "scaffold"): "71b637dd195eab37",
        ("gc_fed", "T5", "feddyn"): "988e7ddeb31b168e", ("gc_fed", "T7", "gc_fed"): "e71b0665b0540847",
    }  # fmt: skip
    with monkeypatch.context() as before:
        before.setattr(revisions, "REVISIONS", {})
        assert {key: only(*key[:2], method=key[2]).replace().digest for key in pinned} == pinned
    smoke = papers.experiments("gc_fed", "T7", scale="smoke", seeds=1)
    assert all(shipped_runs.find(e) for e in smoke)


def test_a_papers_own_deviations_are_options_and_the_source_is_the_default():
    assert only("gc_fed", "T5", method="feddyn").method_options["h_scale"] == "1/S^2"
    assert only("gc_fed", "T5", method="fedacg").method_options["variant"] == "2025-03"
    assert only("fedimpro", "T1", method="scaffold").method_options == {"c_scale": "1/S"}
    assert only("fedimpro", "T1", method="feddyn").method_options == {}
    assert only("fedgps", "T1", method="scaffold").method_options == {}


def test_ccvr_of_fedgps_trains_as_all_and_refits_with_its_own_learning_rate():
    ccvr = only("fedgps", "T1", method="ccvr")
    assert (ccvr.lr, ccvr.method_options) == (0.01, {})
    table = papers.hyperparameters("fedgps")
    assert table[(table.method == "CCVR") & (table.hyperparameter == "lr")].value.tolist() == ["0.001"]


def test_methods_whose_source_weights_by_size_do_so_where_the_others_count_equally():
    for paper, by_size in (("fedacd", "fednova"), ("fedgps", "feddisco")):
        found = papers.experiments(paper, "T1", scale="paper", seeds=1)
        assert {e.method for e in found if e.weighting == "size"} == {by_size}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_value_has_an_origin_and_every_method_its_hyperparameters(paper):
    table = papers.hyperparameters(paper)
    valued = table[table.kind != ""]
    assert (valued.origin != "").all()
    assert {"lr", "momentum", "weight_decay", "batch_size"} <= set(table[table.method == "all"].hyperparameter)
    without = {"FedAvg", "FedNova", "FedVARP"}
    assert set(table[table.kind == ""].method) <= without
    # in full: nothing is cut off in a notebook
    page = table._repr_html_()
    assert page.count("<tr") == len(table) + 1 and "..." not in page


def test_the_list_follows_overrides_as_the_runs_do():
    overrides = {"FedProx": {"mu": 0.77}, "all": {"lr": 0.5}}
    plain, changed = papers.hyperparameters("fedgps"), papers.hyperparameters("fedgps", overrides)
    named = changed.set_index(["method", "hyperparameter"]).value
    assert (named["FedProx", "mu"], named["all", "lr"]) == ("0.77", "0.5") and (changed.origin[:2] == "override").all()
    assert ("FedLESAM", "lr") in plain.set_index(["method", "hyperparameter"]).index  # which lr for all replaces
    assert named.xs("lr", level="hyperparameter").to_dict() == {"all": "0.5", "CCVR": "0.001"}  # CCVR's is an option
    e = only("fedgps", "T1", overrides, method="fedlesam")
    assert e.lr == 0.5 and only("fedgps", "T1", overrides, method="fedprox").method_options == {"mu": 0.77}


def test_an_override_changes_exactly_the_method_it_names():
    plain = papers.experiments("gc_fed", "T5", scale="paper", seeds=2)
    changed = papers.experiments("gc_fed", "T5", scale="paper", seeds=2, overrides={"FedProx": {"mu": 0.01, "lr": 0.1}})
    pairs = list(zip(plain, changed, strict=True))
    assert {a.method for a, b in pairs if a != b} == {"fedprox"}
    for a, b in pairs:
        if a.method == "fedprox":
            assert b == a.replace(lr=0.1, method_options={"mu": 0.01})
    assert papers.experiments("gc_fed", "T5", scale="paper", seeds=2) == plain  # it does not outlast the call


def test_an_override_for_all_reaches_all_and_goes_before_what_the_paper_prints_for_a_cell():
    learning_rates = {e.lr for e in papers.experiments("fedimpro", "T1", scale="paper", seeds=1)}
    assert learning_rates == {0.1, 0.01, 0.001}  # Table 5
    changed = papers.experiments("fedimpro", "T1", scale="paper", seeds=1, overrides={"all": {"lr": 0.05}})
    assert {e.lr for e in changed} == {0.05}
    both = {"all": {"lr": 0.05}, "SCAFFOLD": {"lr": 0.02, "c_scale": "1/N"}}
    changed = papers.experiments("fedimpro", "T1", scale="paper", seeds=1, overrides=both)
    assert {(e.method == "scaffold", e.lr, e.method_options.get("c_scale")) for e in changed} == {
        (True, 0.02, "1/N"), (False, 0.05, None)
    }  # fmt: skip


def test_an_override_reaches_wrapped_methods_and_variants_but_not_what_a_table_varies():
    wrapped = {"FedProx": {"mu": 0.5}, "GC-Fed": {"vector_params": "skip"}}
    found = papers.experiments("gc_fed", "T7", scale="paper", seeds=1, overrides=wrapped)
    assert {"base": "fedprox", "mu": 0.5, "vector_params": "skip"} in [e.method_options for e in found]
    assert {"base": "fedprox", "mu": 0.5} in [e.method_options for e in found]  # around it Global GC
    found = papers.experiments("fedgps", "F4", scale="paper", seeds=1, overrides={"FedGPS": {"lambda_g": 0.2}})
    assert {e.method_options.get("lambda_g") for e in found} == {None, 0, 0.2}
    varied = papers.experiments("gc_fed", "F10", scale="paper", seeds=1, overrides={"all": {"momentum": 0.5}})
    assert {e.lr for e in varied} > {0.001, 0.1} and {e.momentum for e in varied} == {0, 0.5, 0.9}


def test_a_methods_own_option_goes_before_the_training_field_of_that_name():
    changed = only("gc_fed", "T5", {"FedDyn": {"clip": 3.0}}, method="feddyn")
    assert changed.method_options["clip"] == 3.0 and changed.clip is None


def test_an_overridden_table_makes_its_runs_says_so_and_has_its_own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    given = {"scale": "smoke", "seeds": 1, "store": tmp_path / "runs"}
    plain = papers.table("gc_fed", "T2", **given)
    overrides = {"FedProx": {"mu": 0.01}, "LocalGC": {"border": 0.5}, "all": {}}
    table = papers.table("gc_fed", "T2", overrides=overrides, **given)
    assert table.caption.endswith(" With LocalGC: border = 0.5.")  # Table 2 has no FedProx
    (made,) = [read_json(path) for path in (tmp_path / "runs").glob("*/experiment.json")]
    assert made["method_options"] == {"border": 0.5}  # the others are shipped
    assert table.loc["LocalGC", ("mean", "ours")] != plain.loc["LocalGC", ("mean", "ours")]
    assert (table.loc["GC-Fed"] == plain.loc["GC-Fed"]).loc["mean"].ours
    assert table.save().path == tmp_path / "smoke/gc_fed/overridden/T2" and plain.path == tmp_path / "smoke/gc_fed/T2"
    assert "With " not in plain.caption


def read_json(path):
    return json.loads(path.read_text())


def test_an_overridden_figure_says_so(tmp_path):
    overrides = {"all": {"clip": 10.0}}
    figure = papers.figure("gc_fed", "F4", scale="smoke", compute=False, store=tmp_path, overrides=overrides)
    assert figure.caption.endswith(" With all: clip = 10.0.") and figure.path.parent.name == "overridden"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            {"FedProxx": {"mu": 1.0}},
            "overrides name 'FedProxx', which GC-Fed does not have here; there are all, FedAvg,",
        ),
        ({"fedprox": {"mu": 1.0}}, "overrides name 'fedprox'"),
        (
            {"FedProx": {"nu": 1.0}},
            "overrides of FedProx name 'nu', which is no hyperparameter of it: mu, lr, lr_decay",
        ),
        ({"all": {"mu": 1.0}}, "overrides of all name 'mu', which is no hyperparameter of it: lr,"),
        ({"FedProx": {"mu": "much"}}, "overrides of FedProx: mu of fedprox is 'much', which is not of the kind float"),
        ({"all": {"lr": -1}}, "overrides of all: lr is -1, but must be a number above 0"),
        ({"FedProx": 0.1}, "overrides of FedProx are 0.1, but must map"),
        ([("FedProx", "mu")], "overrides is .*, but must map methods to values"),
    ],
)
def test_bad_overrides_get_a_sentence_before_any_work(overrides, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        papers.table("gc_fed", "T5", overrides=overrides, store=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


LINE = "gc_fed,FedProx,fedprox,,option,mu,0.1,authors' code,,"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (LINE.replace("gc_fed", "gcfed"), "line 2: unknown paper 'gcfed' .did you mean 'gc_fed'"),
        (LINE.replace(",fedprox", ",fedproxx"), "line 2: unknown method 'fedproxx' .did you mean 'fedprox'"),
        (LINE.replace("mu", "nu"), "line 2: fedprox has no option 'nu'; its options are: mu"),
        (LINE.replace("0.1", '"""x"""'), "line 2: mu of fedprox is 'x', which is not of the kind float"),
        (LINE.replace("0.1", "x"), "line 2: "),
        (LINE.replace("option", "default").replace("0.1", "0.2"), "mu of fedprox is 0.2, but its default is 0.1"),
        (LINE.replace("option", "training"), "unknown hyperparameter of training 'mu'; choose one of lr,"),
        (LINE.replace("option", "choice"), "unknown kind 'choice'; choose one of option, default, training"),
        (LINE.replace("authors' code", "rumour"), "unknown origin 'rumour'; choose one of paper"),
    ],
)
def test_a_bad_line_of_the_file_gets_a_sentence(line, sentence, tmp_path):
    file = tmp_path / "hyperparameters.csv"
    header = FILE.read_text().splitlines()[0]
    file.write_text(f"{header}\n{LINE}\n")
    assert [row.value for row in read(file)] == [0.1]
    file.write_text(f"{header}\n{line}\n")
    with pytest.raises(ValueError, match=f"hyperparameters.csv, .*{sentence}"):
        read(file)


def test_an_unknown_paper_gets_a_sentence():
    with pytest.raises(ValueError, match="unknown paper 'fedgsp'; the papers are fedgps, fedacd"):
        papers.hyperparameters("fedgsp")
    assert settings.hyperparameters is papers.hyperparameters
