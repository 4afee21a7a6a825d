"""The store as tasks elsewhere have it: the keeper gives what it holds and writes what they send. Ray is not needed."""

import pickle
from types import SimpleNamespace

import cloudpickle
import pytest
import torch
from filelock import Timeout

from paperlib import run
from paperlib.files import DamagedFile
from paperlib.runs import keeper
from paperlib.runs import store as store_module
from paperlib.runs.keeper import FarStore, Keeper
from paperlib.runs.locks import locked
from paperlib.runs.store import Store


class Actor:
    """A keeper that only copies reach, and of which only copies come back."""

    def __init__(self, store):
        self.keeper = Keeper(store, b"")

    def __getattr__(self, name):
        def remote(*given):
            return cloudpickle.dumps(getattr(self.keeper, name)(*pickle.loads(cloudpickle.dumps(given))))

        return SimpleNamespace(remote=remote)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(keeper, "answer", pickle.loads)
    return tmp_path / "kept", Actor(tmp_path / "kept")


EPOCHS = {"distill_epochs": 2, "generator_steps": 1, "batch": 8, "generator_width": 0.0625}
ONE_SHOT = {"method": "feddf", "sampled": 6, "method_options": EPOCHS}


@pytest.mark.parametrize("how", [{"method": "scaffold"}, ONE_SHOT | {"rounds": 2}], ids=lambda how: how["method"])
def test_a_run_of_a_lost_task_goes_on_in_another_with_the_same_bits(tiny, kept, tmp_path, how):
    store, actor = kept
    e = tiny.replace(**how)

    def lose(row):
        if row["round"] == 3:
            raise InterruptedError

    lost = FarStore(store, actor, e.digest)
    with pytest.raises(InterruptedError):
        run(e, store=lost, workers=1, on_round=lose)
    assert Store(store).rounds_done(e) == 3
    played = []
    result = run(e, store=FarStore(store, actor, e.digest), workers=1, on_round=played.append)
    assert played[0]["round"] == 4
    alone = run(e, store=tmp_path / "alone", workers=1)
    assert torch.equal(result.parameters, alone.parameters)
    assert result.history.drop(columns="seconds").equals(alone.history.drop(columns="seconds"))
    assert run(e, store=FarStore(store, actor, e.digest)).summary == result.summary
    with pytest.raises(RuntimeError, match=f"another task plays the run {e.digest} by now"):
        lost.note("still here")


def test_a_run_that_another_process_works_on_is_left_to_it(tiny, kept):
    store, actor = kept
    with Store(store).lock(tiny):
        assert not actor.keeper.take(tiny.digest, "task", tiny.digest)
    assert actor.keeper.take(tiny.digest, "task", tiny.digest)
    with pytest.raises(Timeout), Store(store).lock(tiny).acquire(timeout=0):
        pass
    assert actor.keeper.take(tiny.digest, "its next task", tiny.digest)
    actor.keeper.leave(tiny.digest, "its next task", tiny.digest)
    with Store(store).lock(tiny).acquire(timeout=0):
        pass


def test_one_run_trains_the_clients_that_others_wait_for(tiny, kept, monkeypatch):
    """As long as it is heard of: its task may be lost, and the next one wait for the processor of those that wait."""
    store, actor = kept
    take = actor.keeper.take
    assert take("a", "task of a", "clients/0f") and take("b", "task of b", "clients/1f")
    assert not take("b", "task of b", "clients/0f")
    actor.keeper.leave("a", "task of a", "clients/0f")
    assert take("b", "task of b", "clients/0f") and not take("a", "task of a", "clients/0f")
    monkeypatch.setattr(keeper, "PATIENCE", 0.0)
    assert take("a", "next task of a", "clients/0f")
    actor.keeper.leave("b", "task of b", "clients/0f")
    actor.keeper.leave("b", "task of b", "clients/1f")
    actor.keeper.leave("b", "task of b", "clients/1f")  # the network lost the answer
    with pytest.raises(Timeout), locked(store / "clients/0f").acquire(timeout=0):
        pass


def test_a_run_that_waits_says_so_once_and_goes_on(tiny, kept, monkeypatch):
    store, actor = kept
    monkeypatch.setattr(keeper, "SILENT", 0.01)
    mine = FarStore(store, actor, tiny.digest)
    lock = Store(store).lock(tiny)
    monkeypatch.setattr(keeper.time, "sleep", lambda _: lock.release())
    with lock, mine.hold(tiny):
        assert not lock.is_locked
    (log,) = (store / "logs").iterdir()
    assert log.read_text().count(f"waits {tiny.digest}: another run or process works on {tiny.digest}") == 1


def test_what_stops_the_keeper_stops_the_run_in_the_same_words(tiny, kept, monkeypatch):
    """A store without room, and a damaged file."""
    store, actor = kept
    mine = FarStore(store, actor, tiny.digest)
    assert str(pickle.loads(pickle.dumps(DamagedFile(store, ": run it again")))) == f"{store} is damaged: run it again"
    assert (
        str(pickle.loads(pickle.dumps(DamagedFile(store, what="has another format")))) == f"{store} has another format"
    )

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "write", full)
    with pytest.raises(OSError, match="No space left"):
        run(tiny, store=mine, workers=1)
