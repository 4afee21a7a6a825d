"""Stores at an address: what one machine has begun another one goes on with, and claims need no common clock."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from filelock import Timeout

from paperlib import run, run_many
from paperlib.oneshot.clients import Clients
from paperlib.runs import remote
from paperlib.runs.shelf import at


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(remote, "BEAT", 0.02)
    monkeypatch.setattr(remote, "PATIENCE", 2.0)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Go to another machine: all that machines have in common is what lies at the address."""

    def go(name: str) -> None:
        monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / name))

    go("first")
    return go


@pytest.fixture
def address(tmp_path):
    return f"file://{tmp_path / 'shared'}"


class Interrupted(Exception):
    pass


def interrupt(e, store, after):
    def stop(row):
        if row["round"] == after:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(e, store=store, on_round=stop)


def files_of(address, e):
    return {path.name for path in (Path(address.removeprefix("file://")) / e.digest).iterdir()}


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_run_goes_on_on_another_machine_with_the_same_bits(tiny, tmp_path, address, machine, method):
    e = tiny.replace(method=method)
    whole = run(e, store=tmp_path / "whole")
    interrupt(e, address, after=3)
    assert at(address).rounds_done(e) == 3
    machine("second")
    rows = []
    result = run(e, store=address, on_round=rows.append)
    assert [row["round"] for row in rows] == [4, 5]
    assert torch.equal(result.parameters, whole.parameters)
    assert files_of(address, e) == {"experiment.json", "history.jsonl", "parameters.safetensors", "summary.json"}
    machine("third")
    again = run(e, store=address, on_round=pytest.fail)
    assert torch.equal(again.parameters, whole.parameters) and again.summary == result.summary


def test_a_finished_run_that_is_discarded_is_gone_everywhere(tiny, address, machine):
    run(tiny, store=address)
    with pytest.raises(Interrupted):
        run(tiny, store=address, resume=False, on_round=lambda row: (_ for _ in ()).throw(Interrupted))
    machine("second")
    assert at(address).finished(tiny) is None and at(address).rounds_done(tiny) == 1


def test_damage_at_the_address_is_noticed_on_the_machine_that_reads_it(tiny, tmp_path, address, machine):
    whole = run(tiny, store=address)
    path = tmp_path / "shared" / tiny.digest / "history.jsonl"
    path.write_text(path.read_text().replace('"round": 2', '"round": 7'))
    machine("second")
    with pytest.warns(UserWarning, match=r"history.jsonl is damaged: the run starts again"):
        result = run(tiny, store=address)
    assert torch.equal(result.parameters, whole.parameters)
    machine("third")
    assert run(tiny, store=address, on_round=pytest.fail).summary["final_accuracy"] == whole.summary["final_accuracy"]


def test_trained_clients_are_shared_between_machines(tiny, address, machine, monkeypatch):
    one = tiny.replace(
        method="dense", model="cnn2", width=0.125, clients=3, sampled=3, rounds=1, pixels="unit",
        method_options={"distill_epochs": 2, "generator_steps": 1, "batch": 8, "generator_width": 0.0625},
    )  # fmt: skip
    run(one, store=address)
    machine("second")
    asked = []
    monkeypatch.setattr(Clients, "_trained", lambda self, *of: asked.append(of[3]) or iter(()))
    run(one.replace(method="ot", method_options={}), store=address)
    assert asked == [[0, 1, 2]]  # all are there


def test_an_address_in_memory_or_none_at_all(tiny, machine):
    assert run(tiny, store="memory://runs").folder is not None
    assert at("memory://runs").finished(tiny) is not None
    with pytest.raises(ValueError, match=r"the store 'nowhere://runs' cannot be opened: Protocol not known: nowhere"):
        run(tiny, store="nowhere://runs")


def test_the_default_store_may_be_an_address(tiny, address, machine, monkeypatch):
    monkeypatch.setenv("PAPERLIB_RUNS", address)
    run(tiny)
    assert "summary.json" in files_of(address, tiny)


# -- claims


def test_a_claim_that_gives_signs_of_life_is_waited_for_and_a_dead_one_is_taken_over(tiny, address, machine):
    first = at(address).lock(tiny)
    machine("second")
    with first:
        with pytest.raises(Timeout):
            at(address).lock(tiny).acquire(timeout=2 * remote.PATIENCE)
    with at(address).lock(tiny).acquire(timeout=1):
        pass
    dead = at(address).lock(tiny).acquire()
    dead.ended.set()  # its process is stopped
    dead.local.release()
    started = time.monotonic()
    with pytest.warns(UserWarning, match="is taken over from a dead process"), at(address).lock(tiny):
        assert time.monotonic() - started > remote.PATIENCE
        with pytest.raises(remote.LostClaim, match="another process has taken over"):
            dead.check()


TWO_MACHINES = """
import json, sys, time
from pathlib import Path
clock, offset = time.time, float(sys.argv[1])
time.time = lambda: clock() + offset
from paperlib import Experiment, run
from paperlib.runs import remote
if __name__ == "__main__":
    for values in json.loads(Path(sys.argv[3]).read_text()):
        run(Experiment(**values), store=sys.argv[2], workers=1, on_round=lambda row: print(row["round"], flush=True))
"""


@pytest.mark.parametrize("kind", ["folder", "address"])
def test_two_machines_with_clocks_an_hour_apart_share_a_store(tiny, tmp_path, address, monkeypatch, kind):
    grid = [tiny.replace(method="scaffold", rounds=30, seed=seed) for seed in range(4)]
    (tmp_path / "grid.json").write_text(json.dumps([json.loads(e.to_json()) for e in grid]))
    (tmp_path / "machine.py").write_text(TWO_MACHINES)
    store = address if kind == "address" else str(tmp_path / "shared")
    machines = []
    for offset in (-1800, 1800):
        monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / f"copies{offset}"))
        command = [sys.executable, tmp_path / "machine.py", str(offset), store, tmp_path / "grid.json"]
        machines.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    played = [line for machine in machines for line in machine.communicate()[0].splitlines()]
    assert [machine.returncode for machine in machines] == [0, 0]
    assert sorted(map(int, played)) == sorted([*range(1, 31)] * 4)  # none twice
    alone = run_many(grid, store=tmp_path / "alone")
    for first, second in zip(run_many(grid, store=store), alone, strict=True):
        assert torch.equal(first.parameters, second.parameters)
