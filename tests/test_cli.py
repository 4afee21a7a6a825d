"""What a user types, and what they see."""

import json
import os
import subprocess
import sys
import warnings

import jsonschema
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from paperlib import Experiment, check, papers, run, run_many
from paperlib.cli import app
from paperlib.cli.tools import experiment_of
from paperlib.methods import build
from paperlib.papers import collection, shipped_runs
from paperlib.papers.collection import LeftOut
from paperlib.papers.shipped_runs import descriptions
from paperlib.reports import gallery
from paperlib.runs.profile import described
from paperlib.runs.store import Run, Store
from paperlib.version import version


@pytest.fixture
def cli(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, list(words))


def test_list_counts_runs_per_scale(cli):
    answer = cli("list", "gc_fed", "--seeds", "1")
    assert answer.exit_code == 0
    row = next(line for line in answer.output.splitlines() if " T8 " in line)
    assert "Top-1 accuracy (%) by the mean" in row and " 12/12 " in row  # a seed of every run is shipped at scale smoke
    assert " 0/12 " in row  # and none at paper
    everything = cli("list", "--seeds", "1").output
    assert all(f"{title} ({paper})" in everything for paper, title in papers.TITLES.items()) and " T18 " in everything


CELL = {"type": ["string", "number", "boolean", "null"]}
ROWS = {"type": "array", "items": {"type": "object", "minProperties": 2, "additionalProperties": CELL}, "minItems": 1}
TABLE = {
    "type": "object", "additionalProperties": False, "required": ["title", "rows"],
    "properties": {"title": {"type": "string"}, "rows": ROWS},
}  # fmt: skip
ANSWER = {
    "type": "object", "additionalProperties": False, "required": ["tables", "notes"],
    "properties": {
        "tables": {"type": "array", "items": TABLE}, "notes": {"type": "array", "items": {"type": "string"}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "title", "entry"),
    [
        (("list", "gc_fed"), "GC-Fed (gc_fed)", ("row", "T8")),
        (("show", "gc_fed", "T8", "--scale", "smoke"), "T8. Top-1", ("one mean per", "Cout")),
        (("show", "gc_fed", "T8", "--scale", "smoke", "--runs"), "GC-Fed T8", ("run", "e971ae28b9307e57")),
        (("plan", "gc_fed", "T8", "--scale", "smoke"), "Scale smoke", None),
        (("methods", "gc_fed"), None, None),
        (("scorecard",), "Claims of FedHydra", None),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) and words else None,
)
def test_commands_that_read_answer_in_one_json_object(cli, words, title, entry):
    answer = json.loads(cli(*words, "--json").stdout)
    jsonschema.validate(answer, ANSWER)
    assert title is None or any(table["title"].startswith(title) for table in answer["tables"])
    rows = [row for table in answer["tables"] for row in table["rows"]]
    assert entry is None or any(row.get(entry[0]) == entry[1] for row in rows)
    assert answer["tables"] or any("gc_fed" in note for note in answer["notes"])
    assert not cli("list", "gc_fed").stdout.startswith("{")  # the next command answers in words again


def test_list_tells_runs_of_this_machine_from_shipped_ones(cli):
    def smoke():
        lines = cli("list", "gc_fed", "--seeds", "1").output.splitlines()
        return next(line for line in lines if " T2 " in line)

    assert "4/4 (" not in smoke()
    run(papers.experiments("gc_fed", "T2", scale="smoke", seeds=1)[0])
    assert "4/4 (1)" in smoke()


def test_show_says_the_command_that_runs_the_rest(cli):
    said = cli("show", "gc_fed", "T8", "--scale", "paper").output
    assert "paperlib run gc_fed T8 --scale paper --seeds 3 --rest runs the rest" in said and "recompute" not in said


@pytest.mark.parametrize(
    ("typed", "right"),
    [("GC-Fed T5", "'gc_fed'"), ("FedACD T1", "'fedacd'"), ("gc_fed t5", "'T5'"), ("gc_fed 5", "'T5'")],
)
def test_names_as_papers_print_them_are_recognised(cli, typed, right):
    assert f"did you mean {right}?" in cli("show", *typed.split()).output


def test_a_method_under_another_name_is_recognised_and_a_wild_one_is_not():
    with pytest.raises(ValueError, match=r"did you mean 'fedavg'\?"):
        check(Experiment(method="FedAvg"))
    with pytest.raises(ValueError, match=r"choose one of [a-z_, ]+$"):
        build("xyzzy")


def test_a_field_under_another_name_is_answered_in_a_sentence():
    with pytest.raises(
        ValueError, match=r"no field 'batchsize' \(did you mean 'batch_size'\?\); the fields are dataset, "
    ):
        Experiment(batchsize=10)
    with pytest.raises(ValueError, match=r"no field 'learning_rate' \(did you mean 'lr'"):
        Experiment().replace(learning_rate=0.1)


def test_the_version_is_that_of_the_results(cli):
    assert cli("--version").output.strip() == version()
    words = [sys.executable, "-m", "paperlib", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == version()


@pytest.mark.parametrize("width", [100, 120, 200])
def test_list_fits_the_terminal_and_one_paper_can_be_listed_alone(cli, monkeypatch, width):
    for module in ("papers", "terminal"):
        monkeypatch.setattr(f"paperlib.cli.{module}.console", Console(width=width))
    answer = cli("list", "gc_fed", "--seeds", "1")
    assert answer.exit_code == 0 and "FedHydra" not in answer.output
    lines = answer.output.splitlines()
    assert max(map(len, lines)) <= width
    row = next(line for line in lines if " T2 " in line)
    assert " 4/4 " in row and ("proposed_method" in row) == (width == 200)
    assert "unknown paper" in cli("list", "gcfed").output


def test_show_puts_ours_beside_printed_without_running(cli, tmp_path):
    answer = cli("show", "gc_fed", "T5", "--scale", "paper")
    assert answer.exit_code == 0
    row = next(line for line in answer.output.splitlines() if "GC-Fed" in line and "66.63" in line)
    assert "not run" in row
    assert not (tmp_path / "runs").exists()


def test_run_makes_the_table_and_a_second_time_reads_it(cli, tmp_path, monkeypatch):
    t2, jobs = papers.experiments("gc_fed", "T2", scale="smoke", seeds=1), []

    def alone(experiments, in_parallel, **how):  # what several processes play is a matter of tests/test_executors.py
        jobs.append(in_parallel)
        return run_many(experiments, **how)

    monkeypatch.setattr(collection, "run_many", alone)
    first = cli("run", "gc_fed", "T2", "--seeds", "1", "--jobs", "2")
    assert first.exit_code == 0 and "4 of 4 runs are done" in first.output
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/summary.json")}
    assert len(kept) == 4
    monkeypatch.setattr(shipped_runs, "find", lambda e: Run(e, {}, pd.DataFrame({"test_accuracy": [0.0] * e.rounds})))
    again = cli("run", "gc_fed", "T2", "--seeds", "1")
    highest = max(Store(tmp_path / "runs").finished(e).summary["best_accuracy"] for e in t2)
    assert f"4 of these runs are shipped, too: in every round both agree within {highest:.2f}" in again.output
    assert kept == {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/summary.json")} and jobs == [2]
    assert (tmp_path / "figures/smoke/gc_fed/T2.csv").exists()


def test_the_rest_of_a_table_is_what_plan_counts_as_left(cli, tmp_path):
    planned = cli("plan", "gc_fed", "T2", "--seeds", "1", "--scale", "smoke")
    assert [line.split()[1:3] for line in planned.output.splitlines() if " T2 " in line] == [["4", "0"]]
    ran = cli("run", "gc_fed", "T2", "--seeds", "1", "--rest")
    assert ran.exit_code == 0 and "4 of 4 runs are done" in ran.output and "shipped, too" not in ran.output
    assert not list((tmp_path / "runs").glob("*/summary.json"))


def test_a_part_of_a_table_can_be_planned_and_run(cli, tmp_path):
    printed = ("dataset=cifar10", "alpha=0.05", "clients=100", "method=fedavg", "method=gc_fed")  # the digits at smoke
    part = ("gc_fed", "T5", "--seeds", "1", "--scale", "smoke", *(w for word in printed for w in ("--only", word)))
    planned = cli("plan", *part)
    assert [line.split()[1] for line in planned.output.splitlines() if " T5 " in line] == ["2"]
    assert cli("run", *part, "--jobs", "1").exit_code == 0
    ran = [json.loads(file.read_text()) for file in (tmp_path / "runs").glob("*/experiment.json")]
    assert sorted(fields["method"] for fields in ran) == ["fedavg", "gc_fed"]
    assert all(fields["alpha"] == 0.05 and fields["dataset"] == "digits" for fields in ran)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "gc_fed", "T5", "--only", "alpha"), "'alpha' is not of the form field=value"),
        (("run", "gc_fed", "T5", "--only", "rate=0.1"), "'rate=0.1': no field 'rate'; the fields are dataset"),
        (("run", "gc_fed", "T5", "--only", "alpha=2"), "no run of GC-Fed T5 has alpha 2; there are 0.05, 0.1"),
        (("plan", "gc_fed", "T5", "--only", "alpha=[1, 2]"), "alpha is [[1, 2]], but must be a name or a number"),
        (("plan", "gc_fed", "--only", "alpha=0.1"), "needs the name of the table or figure"),
        (("plan", "gc_fed", "T99"), "GC-Fed has no table or figure 'T99' here"),
        (("show", "gc_fed", "T99"), "GC-Fed has no table or figure 'T99' here"),
        (("run", "gcfed", "T5"), "unknown paper 'gcfed'"),
        (("reproduce", "gc_fed", "nosuch"), "unknown paper 'nosuch'"),
        (("reproduce", "--scale", "tiny"), "unknown scale 'tiny'"),
        (("reproduce", "gc_fed", "--scale", "tiny"), "unknown scale 'tiny'; choose one of best, smoke"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_status_2(cli, words, sentence):
    answer = cli(*words)
    assert answer.exit_code == 2
    assert sentence in " ".join(answer.output.split())
    assert "Traceback" not in answer.output


def test_gallery_links_every_file_it_shows(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    papers.table("gc_fed", "T5", scale="small", compute=False).save()
    papers.figure("gc_fed", "F5", scale="small").save()
    page = gallery.build().read_text()
    for name in ("T5.csv", "T5.tex", "F5.pdf", "F5.png"):
        assert f'"small/gc_fed/{name}"' in page and (tmp_path / "small/gc_fed" / name).exists()
    assert "66.47" in page and "scale small" in page


def test_a_terminal_that_knows_ascii_alone_shows_a_table(tmp_path):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PAPERLIB_FIGURES": str(tmp_path)}
    command = [sys.executable, "-c", "from paperlib.cli import app; app()", "show", "gc_fed", "T5"]
    done = subprocess.run(command, capture_output=True, env=os.environ | plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"Traceback" not in done.stderr and b"T5" in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
@pytest.mark.parametrize("words", [["show", "gc_fed", "T1"], ["--version"]])
def test_a_full_output_is_a_sentence_and_no_traceback(words):
    command = [sys.executable, "-m", "paperlib", *words]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1 and "No space left on device" in ended.stderr


def test_errors_are_not_among_the_results(cli):
    answer = cli("show", "gc_fed", "T99")
    assert answer.exit_code == 2 and answer.stdout == "" and "'T99' here; there are T1" in answer.stderr


def test_the_runs_of_a_table_are_named_and_a_beginning_of_their_names_will_do(cli):
    listed = cli("show", "gc_fed", "T8", "--scale", "smoke", "--runs")
    assert listed.exit_code == 0
    digests = [word for line in listed.output.splitlines() for word in line.split()[:1] if len(word) == 16]
    e = papers.experiments("gc_fed", "T8", scale="smoke", seeds=1)
    assert {one.digest for one in e} <= set(digests) and len(set(digests)) == len(digests)
    first = digests[0]
    least = next(n for n in range(4, 17) if sum(d.startswith(first[:n]) for d in descriptions()) == 1)
    assert experiment_of([first[:least]]).digest == first
    with pytest.raises(ValueError, match="is neither field=value"):
        experiment_of([first[:3]])


def test_a_beginning_of_several_names_is_refused(monkeypatch):
    names = {"abcd" + "0" * 12: {}, "abcd" + "1" * 12: {}}
    with pytest.raises(ValueError, match="'abcd' begins 2 digests"):
        described(["abcd"], names)


def test_a_description_of_any_size_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "experiment.json", "wb") as file:
        file.truncate(10**10)
    with pytest.raises(ValueError, match="has 10,000,000,000 bytes, but the description of a run at most"):
        experiment_of([str(tmp_path)])


def test_runs_that_are_left_out_are_said_and_end_with_status_1(cli, monkeypatch):
    def collect(planned, **_):
        warnings.warn(LeftOut("the runs on cifar100 are left out: it is not there"), stacklevel=1)
        return {}

    monkeypatch.setattr(papers, "collect", collect)
    answer = cli("run", "gc_fed", "T8", "--rest")
    assert answer.exit_code == 1 and answer.stderr == "the runs on cifar100 are left out: it is not there\n"
    assert (
        "LeftOut" not in answer.output and "runs the rest" in answer.stdout and 'recompute="rest"' not in answer.stdout
    )
