"""Runs in a process of their own: paused, resumed, found again, and ended with whoever started them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest
import torch

from paperlib import run
from paperlib.runs.background import BackgroundRun, started, worked_on
from paperlib.runs.locks import holder
from paperlib.runs.store import Store
from paperlib.teaching.widgets import live

from .processes import undisturbed, wait_until


def test_a_run_that_is_paused_and_resumed_ends_with_the_bits_of_an_undisturbed_one(tiny, tmp_path):
    # SCAFFOLD keeps state at the server and at every client
    e = tiny.replace(method="scaffold", rounds=300)
    shelf = Store(tmp_path / "paused")
    first = BackgroundRun(e, shelf)
    assert started(e, shelf) is first
    wait_until(lambda: shelf.rounds_done(e) >= 3)
    assert worked_on(e, shelf)
    first.stop()
    done = shelf.rounds_done(e)
    assert 3 <= done < 300 and not first.alive and started(e, shelf) is None and not worked_on(e, shelf)

    second = BackgroundRun(e, shelf)
    wait_until(lambda: not second.alive)
    assert second.error == ""
    whole = undisturbed(e, tmp_path / "whole")
    resumed = shelf.finished(e)
    assert torch.equal(resumed.parameters, whole.parameters)
    assert resumed.history.test_accuracy.tolist() == whole.history.test_accuracy.tolist()


STARTER = """
import sys, time
from pathlib import Path
from paperlib import Experiment
from paperlib.runs.background import BackgroundRun
from paperlib.runs.store import Store
if __name__ == "__main__":
    child = BackgroundRun(Experiment.from_json(Path(sys.argv[1]).read_text()), Store(sys.argv[2]))
    print(child._process.pid, flush=True)
    time.sleep(600)
"""


WAITER = """
import signal, sys
from pathlib import Path
from paperlib import Experiment, run
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
run(Experiment.from_json(Path(sys.argv[1]).read_text()), store=sys.argv[2], workers=1)
"""


def test_the_process_of_a_run_ends_when_the_one_that_started_it_is_killed(tiny, tmp_path):
    e, shelf = tiny.replace(rounds=100_000), Store(tmp_path / "store")
    (tmp_path / "e.json").write_text(e.to_json())
    (tmp_path / "start.py").write_text(STARTER)
    command = [sys.executable, tmp_path / "start.py", tmp_path / "e.json", shelf.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        wait_until(lambda: shelf.rounds_done(e) >= 2)
        os.kill(starter.pid, signal.SIGKILL)
    wait_until(lambda: not worked_on(e, shelf), seconds=20)
    view = live.live_run(e, shelf.path)
    assert view.state == "paused" and not view.buttons["Resume"].disabled and view.buttons["Start"].disabled
    assert f"interrupted after {shelf.rounds_done(e)} of 100000 rounds" in view.view.words


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_run_that_cannot_be_says_why_in_its_own_sentence(tiny, tmp_path):
    child = BackgroundRun(tiny, Store(tmp_path), device="cuda")
    wait_until(lambda: not child.alive)
    assert child.error == "device is 'cuda', but torch finds no GPU here; choose cpu or auto"


def test_the_widget_shows_a_finished_run_at_once_and_who_else_works_on_one(tiny, tmp_path):
    shelf = Store(tmp_path)
    result = run(tiny, store=shelf.path)
    widget = live.live_run(tiny, shelf.path)
    assert widget.state == "finished" and all(button.disabled for button in widget.buttons.values())
    assert f"finished after 5 of 5 rounds. Test accuracy {result.summary['final_accuracy']:.2f} %" in widget.view.words

    widget.text.value += " rounds=7"
    assert widget.experiment == tiny.replace(rounds=7) and widget.state == "new"
    with shelf.lock(widget.experiment):
        widget.refresh()
        assert "another process works on it" in widget.view.words and widget.buttons["Start"].disabled
    words = widget.view.words
    widget.text.value += " round=3"
    assert widget.view.words == words and "no field" in widget.screen.error  # the view stays


def test_a_run_that_another_process_holds_says_so_in_one_line_and_the_wait_can_be_interrupted(tiny, tmp_path):
    (tmp_path / "e.json").write_text(tiny.to_json())
    (tmp_path / "wait.py").write_text(WAITER)
    command = [sys.executable, tmp_path / "wait.py", tmp_path / "e.json", tmp_path / "store"]
    with (
        Store(tmp_path / "store").hold(tiny),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting,
    ):
        said = waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        rest = waiting.stderr.read()
    assert tiny.digest in said and f"waits for process {os.getpid()} of {socket.gethostname()}, which" in said
    assert said.endswith("Ctrl-C ends the wait\n") and "KeyboardInterrupt" in rest and waiting.returncode
    assert Store(tmp_path / "store").rounds_done(tiny) == 0


@pytest.mark.parametrize("said", [b"", b"\xff\x1b[2J" + b"x" * 10_000])
def test_who_holds_a_run_is_one_line_whatever_its_lock_says(tmp_path, said):
    (tmp_path / "lock").write_bytes(said)
    assert holder(tmp_path).isprintable() and 0 < len(holder(tmp_path)) < 500


class Starting:
    """A process that has not begun with its run."""

    alive, error = True, ""

    def __init__(self, experiment, store):
        pass


def test_a_run_whose_process_starts_says_so_and_one_that_is_done_is_finished_though_its_process_lives(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(live, "BackgroundRun", Starting)
    widget = live.live_run(tiny, tmp_path)
    assert "not started, 5 rounds to go" in widget.view.words
    widget.go()
    assert "running, its process starts, which takes some seconds" in widget.view.words
    with Store(tmp_path).lock(tiny):
        widget.refresh()
        assert "running, round 1 is under way" in widget.view.words
    run(tiny, store=tmp_path)
    widget.refresh()
    assert widget.child.alive and "finished after 5 of 5 rounds" in widget.view.words


def test_a_run_that_ends_while_it_is_looked_at_is_looked_at_once_more(tiny, tmp_path, monkeypatch):
    run(tiny, store=tmp_path)
    widget, states = live.live_run(tiny, tmp_path), iter(["running"])
    monkeypatch.setattr(live.LiveRun, "state", property(lambda self: next(states, "finished")))
    widget.refresh()
    assert "running, 5 of 5 rounds done" in widget.view.words  # the last thing before the summary was there
    states = iter(["running"])
    asyncio.run(widget._looking())
    assert "finished after 5 of 5 rounds" in widget.view.words


def test_the_model_is_tried_on_the_clients_of_its_round(tiny, tmp_path, interrupt_after):
    interrupt_after(tiny, 2, tmp_path)
    e, shelf = tiny, Store(tmp_path)
    scene, seen = live.look(e, shelf)
    # the checkpoint of the round that was interrupted had not been written, or had been
    assert seen.number in (1, 2) and seen.clients == live.sampled_clients(e, seen.number)
    assert seen.labels.tolist() == scene.method.context.counts[seen.clients].tolist()
    number, theta, buffers, _ = live.saved_model(e, shelf)
    indices = scene.method.context.indices[seen.clients[0]]
    data = scene.data
    x = live.normalise(data.train_images[indices], data)
    right = scene.method.net(theta, x, buffers=buffers).argmax(1) == data.train_labels[indices]
    assert len(indices) <= live.PROBES and seen.accuracies[0] == pytest.approx(100 * right.double().mean().item())


def test_the_text_of_an_experiment_gives_the_experiment(tiny):
    from shlex import split

    e = tiny.replace(method="fedprox", method_options={"mu": 0.1}, measure=("cka",), alpha=0.3)
    assert live.described(split(live.words_of(e))) == e
