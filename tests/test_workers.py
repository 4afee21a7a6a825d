"""The pool of single-threaded workers, and what it leaves behind."""

import threading
import time

import pytest
import torch

from paperlib.workers import worker_pool


def flushes_denormals(_: object = None) -> bool:
    return float(torch.tensor(1e-40) * 0.5) == 0.0


@pytest.fixture(autouse=True)
def two_threads_and_denormals():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_flush_denormal(False)
    yield
    torch.set_num_threads(threads)


def test_denormals_are_zero_and_threads_single_inside_the_pool():
    with worker_pool(3) as pool:
        assert list(pool.map(flushes_denormals, range(12))) == [True] * 12
        assert set(pool.map(lambda _: torch.get_num_threads(), range(12))) == {1}
        assert (flushes_denormals(), torch.get_num_threads()) == (True, 1)


def test_callers_settings_come_back():
    with worker_pool(2) as pool:
        list(pool.map(flushes_denormals, range(4)))
    assert (flushes_denormals(), torch.get_num_threads()) == (False, 2)


def test_callers_settings_come_back_after_an_exception():
    with pytest.raises(KeyError), worker_pool(2):
        raise KeyError
    assert (flushes_denormals(), torch.get_num_threads()) == (False, 2)


def test_a_caller_who_flushes_denormals_still_does_so():
    torch.set_flush_denormal(True)
    with worker_pool(1):
        pass
    assert flushes_denormals()
    torch.set_flush_denormal(False)


def test_clients_run_side_by_side():
    everybody = threading.Barrier(4, timeout=30)
    with worker_pool(4) as pool:
        assert sorted(pool.map(lambda _: everybody.wait(), range(4))) == [0, 1, 2, 3]


def test_leaving_early_does_not_play_what_is_still_queued():
    played = []
    with pytest.raises(KeyError), worker_pool(1) as pool:
        for number in range(20):
            pool.submit(lambda n: (time.sleep(0.05), played.append(n)), number)
        raise KeyError
    assert len(played) < 10
