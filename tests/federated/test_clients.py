"""Clients' persistent states: what is kept, where it is kept, and that no bit depends on it."""

import gc
import json
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paperlib import Experiment, run
from paperlib.data import load
from paperlib.federated import client_states as module
from paperlib.federated.client_states import ClientStates
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round, sampled_clients, simulate
from paperlib.files import DamagedFile
from paperlib.methods import FedAvg
from paperlib.runs.devices import machine
from paperlib.runs.measures import measures_of
from paperlib.runs.prepare import prepare
from paperlib.runs.records import read_state
from paperlib.runs.store import Store
from paperlib.workers import worker_pool

FEDGPS = {"surrogate_images": 4, "surrogate_batch": 8}
KEEPING = {
    "scaffold": {"method": "scaffold"},
    "feddyn": {"method": "feddyn"},
    "fedvarp": {"method": "fedvarp"},
    "gc_fed_fedvarp": {"method": "gc_fed", "method_options": {"base": "fedvarp"}},
    "momentum": {"method": "fedavg", "momentum_buffer": "keep"},
    "fedgps": {
        "method": "fedgps", "method_options": FEDGPS | {"require_history": False}, "measure": ["surrogate_divergence"],
    },
    "fedgps_history": {"method": "fedgps", "method_options": FEDGPS},
    "fedgps_cf": {"method": "fedgps_cf", "method_options": FEDGPS},
    "fedgps_scaffold": {"method": "fedgps", "method_options": FEDGPS | {"base": "scaffold"}},
}  # fmt: skip


@pytest.fixture
def many(tiny) -> Experiment:
    """Twelve clients of which three take part."""
    return tiny.replace(clients=12, sampled=3, rounds=7)


@pytest.fixture
def nothing_held(monkeypatch):
    """Every state is read from disk."""
    monkeypatch.setattr(module, "CACHE", 0)


def prepared(e: Experiment) -> tuple[FedAvg, Progress]:
    return prepare(e, load(e.dataset, train_size=e.train_size, test_size=e.test_size))


def size(state: dict[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Equal to the last bit, NaN and the sign of zero included."""
    return first.keys() == second.keys() and all(
        (a.dtype, a.shape) == (b.dtype, b.shape) and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(first.values(), (second[name] for name in first), strict=True)
    )


# -- the mapping


@pytest.mark.parametrize("spilled", [False, True])
def test_state_comes_back_as_it_was_whatever_its_tensors(tmp_path, nothing_held, spilled):
    states = ClientStates(tmp_path if spilled else None)
    odd = torch.tensor([torch.nan, -torch.inf, -0.0, 1e-42])
    state = {
        "optimizer/momentum": odd, "scalar": torch.tensor(True), "counts": torch.arange(6).view(2, 3),
        "double": torch.randn(4, dtype=torch.float64), "empty": torch.zeros(0, 3), "part": torch.arange(9.0)[2:4],
        "transposed": torch.randn(3, 5).T, "same": odd,
    }  # fmt: skip
    states[3] = state
    if spilled:
        states.save(1)
    assert same(states[3], {name: value.contiguous() for name, value in state.items()})
    assert (states.bytes_held == 0) == spilled


def test_state_is_read_to_the_device_of_the_run(tmp_path, nothing_held):
    states = ClientStates(tmp_path, torch.device("meta"))
    states[0] = {"c": torch.ones(3)}
    states.save(1)
    assert states[0]["c"].device.type == "meta"


def test_state_without_tensors_is_none(tmp_path):
    states = ClientStates(tmp_path)
    states[1], states[2] = {}, {"c": torch.ones(2)}
    states.save(1)
    states[2] = {}
    assert 1 not in states and 2 not in states and list(states) == []
    assert (states.files, states.bytes_held) == ({}, 0)
    with pytest.raises(KeyError, match="2"):
        states[2]
    with pytest.raises(KeyError, match="2"):
        del states[2]


def test_dict_that_is_handed_out_is_not_the_stored_one(tmp_path):
    states = ClientStates(tmp_path)
    for _ in range(2):  # changed, then saved
        states[0] = given = {"c": torch.ones(2)}
        given["d"] = states[0]["e"] = torch.ones(2)
        assert set(states[0]) == {"c"}
        states.save(1)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["set", "set", "get", "delete", "save"]), st.integers(0, 5)), max_size=40),
    budget=st.sampled_from([0, 40, 100, 10_000]),
)
def test_any_use_of_the_states_is_that_of_a_dict_within_the_budget(tmp_path_factory, steps, budget):
    """Against a plain dict; and from what the last save named, everything can be read as it then was."""
    folder = tmp_path_factory.mktemp("states")
    expected: dict[int, dict[str, Tensor]] = {}
    saved: dict[int, dict[str, Tensor]] = {}
    states, named, changed, round = ClientStates(folder), {}, {}, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CACHE", budget)
        for number, (step, client) in enumerate(steps):
            if step == "set":
                states[client] = expected[client] = changed[client] = {"c": torch.full((client + 1,), number)}
            elif step == "delete":
                if expected.pop(client, None):
                    del states[client]
                changed.pop(client, None)
            elif step == "save":
                round += 1
                states.save(round)
                saved, named, changed = dict(expected), dict(states.files), {}
            else:
                assert (client in states) == (client in expected)
                assert client not in expected or same(states[client], expected[client])
            assert list(states) == sorted(expected) and len(states) == len(expected)
            assert states.bytes_held <= max(budget, sum(map(size, changed.values())))
        survivors = ClientStates(folder, files=named)
        survivors.check()
        assert survivors.keys() == saved.keys() and all(same(survivors[k], saved[k]) for k in saved)


def test_least_recently_used_states_leave_first(tmp_path, monkeypatch):
    read, states = [], ClientStates(tmp_path)
    original = module.read_tensors
    monkeypatch.setattr(module, "read_tensors", lambda path, *rest: read.append(path.name) or original(path, *rest))
    monkeypatch.setattr(module, "CACHE", 3 * 8)
    for client in range(3):
        states[client] = {"c": torch.ones(2)}
    states.save(1)
    assert states[0] and states[2]
    states[3] = {"c": torch.ones(2)}
    assert states[0] and states[2] and read == []
    assert states[1] and read == ["client-1-1.safetensors"]


def test_threads_share_the_states(tmp_path, monkeypatch):
    states = ClientStates(tmp_path)
    for client in range(40):
        states[client] = {"c": torch.full((100,), client)}
    states.save(1)
    monkeypatch.setattr(module, "CACHE", 10 * 800)
    with worker_pool(8) as pool:
        order = np.random.default_rng(0).integers(0, 40, 2000).tolist()
        for client, state in zip(order, pool.map(states.__getitem__, order), strict=True):
            assert (state["c"] == client).all()
    assert states.bytes_held <= 10 * 800
    assert states.bytes_held == sum(size(state) for state in states._clean.values())


# -- a run whose states are on disk


@pytest.mark.parametrize("name", KEEPING)
def test_states_on_disk_and_an_interruption_change_no_bit(many, tmp_path, pool, nothing_held, name, interrupt_after):
    e = many.replace(**KEEPING[name])
    method, progress = prepared(e)
    rows = list(islice(simulate(method, progress, pool, measures=measures_of(method.context.experiment)), 4))
    interrupt_after(e, 4, tmp_path)
    _, resumed = prepared(e)
    Store(tmp_path).resume(e, resumed, {})
    assert list(resumed.clients) == list(progress.clients) and len(resumed.clients) > 2
    assert all(same(resumed.clients[k], progress.clients[k]) for k in progress.clients)
    assert same(resumed.server, progress.server)

    rows += simulate(method, progress, pool, measures=measures_of(method.context.experiment))
    result = run(e, store=tmp_path)
    assert torch.equal(result.parameters, method.finish(progress.theta, progress.server))
    history = pd.DataFrame(rows)[result.history.columns].astype({"round": int})
    pd.testing.assert_frame_equal(
        result.history.drop(columns="seconds"), history.drop(columns="seconds"), check_exact=True
    )


@pytest.mark.parametrize("name", KEEPING)
def test_only_what_a_round_changed_is_read_and_written(many, store, monkeypatch, nothing_held, name):
    e = many.replace(**KEEPING[name]).replace(measure=[])
    drops, kept_after_a_miss = "fedgps" in name, name not in ("fedgps",)
    read, original = [], module.read_tensors
    monkeypatch.setattr(module, "read_tensors", lambda path, *rest: read.append(path.name) or original(path, *rest))
    folder, before, cohorts, seen = store / e.digest, {}, [[]], set()

    def look(row):
        nonlocal before, seen
        round = row["round"]
        cohorts.append(sampled_clients(e, round))
        left = set(cohorts[-2]) - set(cohorts[-1]) if drops else set()
        now = {path.name: path.stat().st_mtime_ns for path in folder.glob("client-*")}
        new = set(cohorts[-1]) | (left if kept_after_a_miss else set())
        assert now.keys() - before.keys() == {f"client-{client}-{round}.safetensors" for client in new}
        assert all(before[path] == now[path] for path in now.keys() & before.keys())
        asked = {int(path.split("-")[1]) for path in read}
        there = seen & (set(cohorts[-1]) | left)
        assert asked == there and len(read) == len(there)
        seen = {int(path.split("-")[1]) for path in now}
        named = json.loads((folder / "state.json").read_text())["clients"]
        assert now.keys() == {f"client-{client}-{file['round']}.safetensors" for client, file in named.items()}
        before = now
        read.clear()

    run(e, store=store, on_round=look)
    assert any(set(a) - set(b) and set(a) & set(b) for a, b in pairwise(cohorts[1:]))


def test_method_without_client_state_writes_the_model_and_no_more(many, store, interrupt_after):
    e = many.replace(method="fedavg")
    interrupt_after(e, 3, store)
    method, _ = prepared(e)
    names = {path.name: path.stat().st_size for path in (store / e.digest).iterdir()}
    assert set(names) == {"lock", "experiment.json", "history.jsonl", "state.json", "checkpoint-3.safetensors"}
    assert 4 * method.net.size < names["checkpoint-3.safetensors"] < 4 * method.net.size + 300
    # Round, three SHA-256, the fingerprints of data and code, and the device and machine of every round.
    assert names["state.json"] < 500 + len(machine())
    assert read_state(store / e.digest)["clients"] == {}


def vectors(length: int) -> int:
    """Tensors of so many entries that are alive."""
    return sum(type(o) is Tensor and o.numel() == length for o in gc.get_objects())


@pytest.mark.parametrize("spilled", [True, False])
def test_memory_does_not_grow_with_the_clients_seen(tiny, tmp_path, pool, monkeypatch, spilled):
    e = tiny.replace(method="scaffold", clients=40, sampled=4, rounds=20)
    method, progress = prepared(e)
    row, length = 4 * method.net.size, method.net.size
    monkeypatch.setattr(module, "CACHE", 6 * row)
    elsewhere = vectors(length)
    if spilled:
        progress.clients = ClientStates(tmp_path)
    alive = []
    for _ in range(e.rounds):
        play_round(method, progress, pool)
        if spilled:
            assert progress.clients.bytes_held <= 6 * row
            progress.clients.save(progress.round)
        if progress.round % 5 == 0:
            alive.append(vectors(length) - elsewhere)
    assert len(progress.clients) > 30
    # six rows, beside the global model and c, which replace those that were there before
    assert max(alive) <= 8 if spilled else max(alive) > 30


def test_states_of_a_round_stay_until_they_are_saved_however_many(many, tmp_path, pool, nothing_held):
    method, progress = prepared(many.replace(method="scaffold"))
    progress.clients = ClientStates(tmp_path)
    play_round(method, progress, pool)
    assert progress.clients.bytes_held == 3 * 4 * method.net.size
    assert list(tmp_path.iterdir()) == []
    progress.clients.save(1)
    assert progress.clients.bytes_held == 0 and len(list(tmp_path.iterdir())) == 3


# -- damage


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def first_to_come_back(e: Experiment, after: int) -> int:
    """A client seen until a round that takes part again later, but not at once."""
    seen = {client for round in range(1, after + 1) for client in sampled_clients(e, round)}
    for round in range(after + 2, e.rounds + 1):
        for client in seen & set(sampled_clients(e, round)):
            return client
    raise AssertionError


def file_of(e: Experiment, store: Path, client: int) -> Path:
    (path,) = (store / e.digest).glob(f"client-{client}-*")
    return path


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_file_that_is_gone_or_cut_short_is_found_on_resume(many, tmp_path, damage, interrupt_after):
    e = many.replace(method="scaffold")
    whole = run(e, store=tmp_path / "whole")
    interrupt_after(e, 3, tmp_path)
    path = file_of(e, tmp_path, first_to_come_back(e, 3))
    damage(path)
    played = []
    with pytest.warns(UserWarning, match=f"{path.name} is damaged: the run starts again"):
        result = run(e, store=tmp_path, on_round=played.append)
    assert len(played) == e.rounds and torch.equal(result.parameters, whole.parameters)


def test_flipped_bit_stops_the_run_that_reads_it_and_the_next_one_starts_again(many, tmp_path, interrupt_after):
    e = many.replace(method="scaffold")
    whole = run(e, store=tmp_path / "whole")
    interrupt_after(e, 3, tmp_path)
    path = file_of(e, tmp_path, first_to_come_back(e, 3))
    flip_a_byte(path)
    played = []
    with pytest.raises(DamagedFile, match=f"{path.name} is damaged and has been removed: run the experiment again"):
        run(e, store=tmp_path, on_round=played.append)
    assert [row["round"] for row in played][0] == 4
    played = []
    with pytest.warns(UserWarning, match=f"{path.name} is damaged: the run starts again"):
        result = run(e, store=tmp_path, on_round=played.append)
    assert len(played) == e.rounds and torch.equal(result.parameters, whole.parameters)
