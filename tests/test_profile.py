"""A profile credits the time to the parts it belongs to, and leaves the run as it is."""

import gzip
import json
import re
from collections import Counter

import pytest
import torch
from typer.testing import CliRunner

from paperlib import Experiment, run
from paperlib.cli import app
from paperlib.data import batches, load
from paperlib.federated.captured import Captured
from paperlib.federated.engines import Engine
from paperlib.federated.simulator import play_round
from paperlib.methods import REGISTRY, FedAvg
from paperlib.runs.prepare import prepare
from paperlib.runs.profile import PARTS, Clock, described, profile
from paperlib.timing import listening, part


class Watch:
    """Time that passes only where somebody takes it."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self) -> None:
        self.now += 1.0


@pytest.fixture
def watch(monkeypatch):
    """A profile measures with this watch."""
    watch = Watch()
    monkeypatch.setattr("paperlib.runs.profile.time", watch)
    return watch


@pytest.fixture
def sleepy(monkeypatch, watch):
    """The method "sleepy" becomes FedAvg with one hook that takes a second."""

    def make(hook):
        def slow(self, *args):
            watch.sleep()
            return getattr(FedAvg, hook)(self, *args)

        monkeypatch.setitem(REGISTRY, "sleepy", type("Sleepy", (FedAvg,), {hook: slow}))

    return make


def only(part: str, seen) -> bool:
    """Whether one part took time, whole seconds of it, and no other one did."""
    seconds = seen.table.seconds
    return seconds[part] == seen.whole >= 1 and set(seconds.index[seconds > 0]) == {part}


def test_parts_add_up_to_the_whole(tiny: Experiment):
    seen = profile(tiny)
    assert seen.engine.name == "sequential" and list(seen.seconds.columns) == list(PARTS)
    assert list(seen.seconds.index) == [2, 3, 4]
    assert seen.table.seconds.sum() == pytest.approx(seen.whole, rel=0.01)
    assert seen.table.percent.sum() == pytest.approx(100)
    assert seen.table["per round"].sum() == pytest.approx(seen.whole / 3, rel=0.01)
    assert set(seen.table.index[seen.table.seconds == 0]) == {"graph"}


@pytest.mark.parametrize(
    ("hook", "where"),
    [
        ("broadcast", "aggregation"),
        ("client_init", "aggregation"),
        ("begin", "method"),
        ("begin_epoch", "method"),
        ("loss", "method"),
        ("local_step", "method"),  # though an aggregation is under way
        ("end", "method"),
        ("aggregate", "aggregation"),
        ("finish", "evaluation"),
    ],
)
def test_the_time_of_a_hook_shows_up_in_its_part(tiny: Experiment, sleepy, hook: str, where: str):
    sleepy(hook)
    assert only(where, profile(tiny.replace(method="sleepy"), rounds=1))


def test_making_a_batch_is_data(tiny: Experiment, monkeypatch: pytest.MonkeyPatch, watch: Watch):
    def slow(*arguments):
        watch.sleep()
        return normalise(*arguments)

    normalise = batches.normalise
    monkeypatch.setattr(batches, "normalise", slow)
    assert only("data", profile(tiny.replace(eval_every=50), rounds=1))


def test_passes_of_an_evaluation_are_evaluation(tiny: Experiment):
    heavy = tiny.replace(train_size=12, test_size=360, model="cnn", batch_size=60)
    seen = profile(heavy, rounds=2)
    assert seen.evaluated == 2 and seen.table.seconds.drop("store").idxmax() == "evaluation"
    rare = profile(heavy.replace(eval_every=50), rounds=2)
    assert rare.evaluated == 0 and rare.table.seconds["evaluation"] == 0


def test_passes_are_the_share_of_forward_and_backward(tiny: Experiment):
    seen = profile(tiny.replace(model="cnn", width=0.5, batch_size=100, eval_every=50), rounds=1)
    assert seen.passes == pytest.approx(seen.table.percent["forward"] + seen.table.percent["backward"])
    assert 20 < seen.passes < 100


def test_samples_count_every_local_epoch_of_the_timed_rounds(tiny: Experiment):
    everybody = tiny.replace(sampled=6, local_epochs=2)
    seen = profile(everybody, rounds=2)
    assert seen.samples == 2 * 2 * 240
    assert f"{seen.samples / seen.whole:,.0f} samples per second" in str(seen)


def test_samples_count_the_batches_of_local_steps(tiny: Experiment):
    """Each of six clients has 40 samples: after batches of 32 and 8 the third step takes 32 again."""
    e = tiny.replace(partition="iid", alpha=None, sampled=6, local_epochs=1, local_steps=3, batch_size=32)
    assert profile(e, rounds=2).samples == 2 * 6 * (32 + 8 + 32)


def test_a_replayed_step_counts_as_graph(tiny: Experiment, pool, watch: Watch):
    replays = []

    def record(step):
        step()
        return lambda: (replays.append(step), watch.sleep())

    method, progress = prepare(tiny.replace(alpha=None, partition="iid", sampled=6), load("digits", train_size=240))
    captured, clock = Captured(record), Clock()
    engine = Engine("captured", lambda round, pool: (captured(round.start(client)) for client in round.cohort))
    with listening(clock):
        play_round(method, progress, pool, engine=engine)
    taken = clock.read()
    assert taken["graph"] == len(replays) == 6 * 2 and sum(taken.values()) == 6 * 2


def test_an_open_part_goes_on_after_one_within(watch: Watch):
    clock = Clock()
    with listening(clock), part("method"):
        with part("forward"):
            watch.sleep()
        watch.sleep()
        watch.sleep()
    taken = clock.read()
    assert (taken["forward"], taken["method"], sum(taken.values())) == (1, 2, 3)
    assert sum(clock.read().values()) == 0  # it has been read


def test_a_part_that_raises_is_left(watch: Watch):
    clock = Clock()
    with listening(clock):
        with pytest.raises(ValueError, match="broken"), part("forward"):
            raise ValueError("broken")
        watch.sleep()
    assert clock.open == ["other"] and clock.read()["other"] == 1


def test_a_trace_shows_the_parts_of_one_round(tiny: Experiment, tmp_path):
    profile(tiny.replace(batch_size=5), rounds=1, trace=tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    ranges = [event for event in events if event.get("cat") == "user_annotation" and event["name"] in PARTS]
    assert {event["name"] for event in ranges} == set(PARTS) - {"graph"}
    count = Counter(event["name"] for event in ranges)
    assert count["store"] == count["aggregation"] == count["evaluation"] == 1

    assert count["backward"] > 3

    def within(inner, outer):
        """Whether every range of one part lies in one of another."""
        spans = [(event["ts"], event["ts"] + event["dur"]) for event in ranges if event["name"] == outer]
        return all(
            any(start <= event["ts"] and event["ts"] + event["dur"] <= end for start, end in spans)
            for event in ranges
            if event["name"] == inner
        )

    assert within("backward", "method") and within("method", "other") and within("data", "other")
    assert within("other", "aggregation") and not within("forward", "method")  # some passes evaluate


def test_a_profiled_run_has_the_bits_of_one_that_is_not(tiny: Experiment, monkeypatch, tmp_path, store):
    models = []

    class Noted(FedAvg):
        def finish(self, theta, server):
            models.append(theta)
            return theta

    monkeypatch.setitem(REGISTRY, "noted", Noted)
    e = tiny.replace(method="noted", model="cnn")
    run(e, store=store)
    alone = models[:5]
    models.clear()
    profile(e, rounds=3, trace=tmp_path / "trace.json")
    assert len(models) == 5 and all(torch.equal(a, b) for a, b in zip(alone, models, strict=True))


def test_impossible_requests_are_refused_before_any_work(tiny: Experiment, tmp_path):
    with pytest.raises(ValueError, match="rounds is 0, but must be"):
        profile(tiny, rounds=0)
    with pytest.raises(ValueError, match="unknown engine 'fast'; choose one of auto"):
        profile(tiny, engine="fast")
    with pytest.raises(ValueError, match="unknown device 'tpu'"):
        profile(tiny, device="tpu")
    with pytest.raises(ValueError, match="a file in a folder that exists"):
        profile(tiny, trace=tmp_path / "absent" / "trace.json")
    with pytest.raises(ValueError, match="met a NaN or an infinity in round 1"):
        profile(tiny.replace(lr=1e38))


def test_words_are_fields_in_json_or_plain_text():
    words = ["dataset=mnist", "alpha=null", "partition=iid", "augment=true", "lr=0.5", 'method_options={"mu":0.1}']
    e = described([*words, "method=fedprox", 'measure=["cka"]'])
    assert e == Experiment(
        dataset="mnist", alpha=None, partition="iid", augment=True, lr=0.5, method="fedprox",
        method_options={"mu": 0.1}, measure=("cka",),
    )  # fmt: skip


@pytest.fixture
def cli(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["profile", *words])


FEW = ("dataset=digits", "train_size=240", "model=mlp", "width=0.1", "clients=6", "sampled=3", "--rounds", "1")


def test_words_as_python_and_hydra_write_them_are_taken():
    assert described(["partition=iid", "alpha=None", "augment=True"]) == Experiment(
        partition="iid", alpha=None, augment=True
    )
    assert described(["augment=False"]) == Experiment(augment=False)


def test_command_prints_every_part_and_stores_nothing(cli, tmp_path):
    answer = cli(*FEW, "method=gc_fed", "--trace", str(tmp_path / "trace.json"))
    assert answer.exit_code == 0
    assert "gc_fed on digits" in answer.output and "cpu, sequential" in answer.output
    _, _, after = answer.output.partition("─")
    cells = [re.split(" {2,}", line.strip()) for line in after.splitlines() if re.match("  [a-z]", line)]
    percent = {row[0]: float(row[-2]) for row in cells}  # "whole" has no words of what it is
    assert set(percent) == set(PARTS) - {"graph"} | {"whole"}
    assert percent.pop("whole") == 100 and sum(percent.values()) == pytest.approx(100, abs=0.5)
    assert "samples per second" in answer.output.splitlines()[-1]
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert not (tmp_path / "runs").exists()


def test_command_says_why_another_engine_plays(cli):
    answer = cli(*FEW, "--engine", "captured")
    assert "sequential (not captured: a CUDA graph needs a GPU)" in answer.output


def test_a_run_is_found_by_digest_folder_and_file_and_left_alone(cli, tmp_path, tiny: Experiment):
    finished = run(tiny, store=tmp_path / "runs")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    for word in (tiny.digest, str(finished.folder), str(finished.folder / "experiment.json")):
        assert described([word]) == tiny
        assert described([word, "method=gc_fed"]) == tiny.replace(method="gc_fed")
    answer = cli(tiny.digest, "--rounds", "1")
    assert answer.exit_code == 0 and str(tiny) in answer.output
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("metod=gc_fed",), "'metod=gc_fed': no field 'metod' (did you mean 'method'?)"),
        (("color=[red]",), "'color=[red]': no field 'color'; the fields are"),
        (("model=cnnn",), "unknown model 'cnnn' (did you mean 'cnn'?); choose one of mlp,"),
        (("clients=many",), "clients is 'many', but must be a whole number"),
        (("0123456789abcdef",), "'0123456789abcdef' is neither field=value, nor the file or folder of a run"),
        (("dataset=digits", "gc_fed"), "'gc_fed' is not of the form field=value"),
        (("dataset=digits", "--rounds", "0"), "rounds is 0, but must be a whole number"),
        (("dataset=digits", "--engine", "fast"), "unknown engine 'fast'"),
        (("dataset=digits", "--trace", "absent/trace.json"), "trace is 'absent/trace.json', but must be a file in"),
    ],
)
def test_bad_words_end_with_one_sentence_and_status_2(cli, words, sentence):
    answer = cli(*words)
    assert answer.exit_code == 2
    assert sentence in " ".join(answer.output.split())
    assert "Traceback" not in answer.output


@pytest.mark.parametrize("text", ["no json", "[1]", '{"rond": 3}'])
def test_a_file_that_describes_no_experiment_is_named(tmp_path, text: str):
    (tmp_path / "experiment.json").write_text(text)
    with pytest.raises(ValueError, match=r"experiment\.json does not describe an experiment"):
        described([str(tmp_path / "experiment.json")])
