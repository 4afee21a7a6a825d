"""A finished result is an answer only to the question it was made for, and the caller's torch changes no bit."""

import json
import subprocess
import sys
import threading
import warnings
from contextlib import nullcontext

import cloudpickle
import numpy as np
import pytest
import torch

from paperlib import run
from paperlib.data import stylegan, surrogate
from paperlib.data.datasets import load, training_labels
from paperlib.methods import REGISTRY
from paperlib.runs import fingerprints
from paperlib.runs import store as store_module
from paperlib.runs.fingerprints import changed, code
from paperlib.runs.profile import profile
from paperlib.runs.store import Store

STREAM = np.random.default_rng(0)


def write_set(folder, images, labels=None):
    folder.mkdir(exist_ok=True)
    np.savez(
        folder / "mine.npz", train_images=images, train_labels=np.arange(len(images)) % 4 if labels is None else labels,
        test_images=images[:40], test_labels=np.arange(40) % 4, classes=np.array(list("abcd")),
    )  # fmt: skip


@pytest.fixture
def mine(tiny, tmp_path, monkeypatch):
    """A run with a data set of the user's own, and its images."""
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "sets"))
    images = STREAM.integers(0, 256, (600, 14, 14), np.uint8)
    write_set(tmp_path / "sets", images)
    return tiny.replace(dataset="mine", train_size=None, test_size=None), images


def replaced(images):
    """One pixel of one image, far from those that are looked at first."""
    images = images.copy()
    images[431, 7, 7] ^= 255
    return images


def quiet_run(e, store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return run(e, store=store, **options)


# -- data


def test_a_finished_run_is_no_answer_for_a_replaced_data_set(mine, store, tmp_path):
    e, images = mine
    first = quiet_run(e, store)
    old = first.parameters
    assert quiet_run(e, store).summary == first.summary
    write_set(tmp_path / "sets", replaced(images))
    with pytest.warns(UserWarning, match=f"data set mine changed since {store / e.digest} was made: the run starts"):
        second = run(e, store=store)
    assert torch.equal(second.parameters, quiet_run(e, tmp_path / "new").parameters)
    assert not torch.equal(second.parameters, old)
    assert quiet_run(e, store).summary == second.summary
    aside = store / f"{e.digest}.aside-1"
    assert {"summary.json", "parameters.safetensors", "history.jsonl"} <= {path.name for path in aside.iterdir()}
    assert list(Store(store).digests()) == [e.digest]


def test_a_run_with_a_partition_file_is_no_answer_for_a_replaced_data_set_either(mine, store, tmp_path):
    e, images = mine
    (tmp_path / "split.json").write_text(json.dumps([list(range(client, 600, 6)) for client in range(6)]))
    e = e.replace(partition=str(tmp_path / "split.json"))
    assert {"data set mine", "images of mine"} <= quiet_run(e, store).summary["fingerprints"].keys()
    write_set(tmp_path / "sets", replaced(images))
    with pytest.warns(UserWarning, match="data set mine changed since"):
        assert Store(store).finished(e) is None


def test_no_rounds_on_replaced_data_follow_those_on_the_old(mine, store, tmp_path, interrupt_after):
    e, images = mine
    interrupt_after(e, 3, store)
    write_set(tmp_path / "sets", replaced(images))
    rows = []
    with pytest.warns(UserWarning, match="data set mine changed since"):
        result = run(e, store=store, on_round=rows.append)
    assert len(rows) == e.rounds
    assert torch.equal(result.parameters, quiet_run(e, tmp_path / "new").parameters)


def test_the_same_data_in_other_files_of_the_same_bytes_changes_nothing(mine, store, tmp_path):
    e, images = mine
    first = quiet_run(e, store)
    (tmp_path / "sets" / "mine.npz").unlink()
    write_set(tmp_path / "sets", images)
    assert quiet_run(e, store).summary == first.summary
    (tmp_path / "sets" / "mine.npz").unlink()  # what is not there cannot be compared
    assert Store(store).finished(e).summary == first.summary


def test_a_replaced_data_set_is_loaded_again_in_the_same_process(mine, tmp_path):
    _, images = mine
    labels = np.arange(600) // 150
    assert load("mine").train_images[431, 0, 7, 7] == images[431, 7, 7]
    assert training_labels("mine")[0][1] == 1
    write_set(tmp_path / "sets", replaced(images), labels)
    assert load("mine").train_images[431, 0, 7, 7] == images[431, 7, 7] ^ 255
    assert torch.equal(training_labels("mine")[0], torch.from_numpy(labels))
    assert torch.equal(load("mine").train_labels, torch.from_numpy(labels))


def test_runs_of_older_versions_have_no_fingerprints_and_remain_answers():
    assert changed({}, {"data set mnist": "0", "method half": "1"}) == ""
    assert changed({"data set mnist": "0"}, {"data set mnist": "0", "method half": "1"}) == ""


# -- code

METHOD = '''
from paperlib.methods import FedAvg

FACTOR = 0.5
OTHER = 3

def shrink(update):
    return update * FACTOR

class Half(FedAvg):
    """FedAvg with half of every update."""

    unused: float = 1.0

    def end(self, theta_0, theta, shared, own, visit):
        upload, own = super().end(theta_0, theta, shared, own, visit)
        upload["delta"] = shrink(upload["delta"])
        return upload, own
'''


def typed(text, name="Half"):
    """A class of a notebook: its module is __main__, and Python has no file of it."""
    names = {"__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), names)
    return names[name]


CHANGES = {
    "constant": ("FACTOR = 0.5", "FACTOR = 0.25"),
    "function that it calls": ("update * FACTOR", "update * FACTOR + 0.0001"),
    "hook": ('shrink(upload["delta"])', 'shrink(shrink(upload["delta"]))'),
    "option": ("unused: float = 1.0", "unused: float = 2.0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_method_has_another_fingerprint(name):
    assert METHOD != METHOD.replace(*CHANGES[name])
    assert code(typed(METHOD)) != code(typed(METHOD.replace(*CHANGES[name])))


IN_A_FUNCTION = (
    METHOD
    + """

def made():
    class Inner(Half):
        def finish(self, theta, server):
            return shrink(super().finish(theta, server))

    return Inner


Inner = made()
"""
)


def test_the_same_method_has_the_same_fingerprint_wherever_it_is(tmp_path):
    other_lines = METHOD.replace("FACTOR = 0.5", "\n\n# said at length\nFACTOR = 0.5").replace("OTHER = 3", "OTHER = 4")
    assert code(typed(METHOD)) == code(typed(other_lines))
    packed, methods = tmp_path / "method", [typed(METHOD), typed(IN_A_FUNCTION, "Inner")]
    packed.write_bytes(cloudpickle.dumps(methods))
    script = "import cloudpickle, sys\nfrom paperlib.runs.fingerprints import code\n"
    script += "print(*map(code, cloudpickle.loads(open(sys.argv[1], 'rb').read())))"
    done = subprocess.run([sys.executable, "-c", script, packed], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*map(code, methods)]


def test_methods_of_the_package_need_no_fingerprint():
    assert code(REGISTRY["gc_fed"]) == fingerprints.BUILT_IN


@pytest.mark.parametrize("finished", [True, False])
def test_a_corrected_method_is_played_from_the_start(tiny, store, tmp_path, monkeypatch, interrupt_after, finished):
    e = tiny.replace(method="half")
    monkeypatch.setitem(REGISTRY, "half", typed(METHOD))
    (quiet_run(e, store) if finished else interrupt_after(e, 3, store))
    monkeypatch.setitem(REGISTRY, "half", typed(METHOD))
    if finished:
        quiet_run(e, store, on_round=lambda row: pytest.fail("the same code is played again"))
    monkeypatch.setitem(REGISTRY, "half", typed(METHOD.replace(*CHANGES["constant"])))
    rows = []
    with pytest.warns(UserWarning, match=f"method half changed since {store / e.digest} was made"):
        result = run(e, store=store, on_round=rows.append)
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    assert torch.equal(result.parameters, quiet_run(e, tmp_path / "new").parameters)


NOTING = (
    METHOD.replace("        upload, own", "        NOTED.append(float(theta.sum()))\n        upload, own")
    + """
    def finish(self, theta, server):
        NOTED.append("end")
        return theta

NOTED = []
"""
)


@pytest.mark.parametrize("finished", [True, False])
def test_what_a_run_changes_in_its_own_code_is_no_change(tiny, store, monkeypatch, interrupt_after, finished):
    """A method that notes something in a list is the same method after the run, here and in another process."""
    e, kind = tiny.replace(method="noting"), typed(NOTING)
    monkeypatch.setitem(REGISTRY, "noting", kind)
    fresh = code(kind)
    (quiet_run(e, store) if finished else interrupt_after(e, 3, store))
    rows = []
    quiet_run(e, store, on_round=rows.append)
    other = e.replace(seed=e.seed + 1)
    assert len(rows) == (0 if finished else 2)
    assert quiet_run(other, store).summary["fingerprints"]["method noting"] == fresh
    monkeypatch.setitem(REGISTRY, "noting", typed(NOTING))  # as in a new process
    for one in (e, other):
        quiet_run(one, store, on_round=lambda row: pytest.fail("the same code is played again"))
    kind.end.__globals__["FACTOR"] = 0.25
    assert code(kind) != fresh


def test_what_a_profile_changes_in_a_method_is_no_change(tiny, store, monkeypatch):
    e = tiny.replace(method="noting")
    monkeypatch.setitem(REGISTRY, "noting", typed(NOTING))
    profile(e, rounds=1)
    quiet_run(e, store)
    monkeypatch.setitem(REGISTRY, "noting", typed(NOTING))  # as in a new process
    quiet_run(e, store, on_round=lambda row: pytest.fail("the same code is played again"))


def test_a_run_of_a_built_in_method_is_no_answer_for_another_of_its_name(tiny, store, monkeypatch):
    built_in = run(tiny, store=store)
    monkeypatch.setattr(fingerprints, "BUILT_IN", "nothing")  # as if the built-in's code were somebody's own
    with pytest.warns(UserWarning, match="method fedavg, model mlp changed since"):
        assert Store(store).finished(tiny) is None
    monkeypatch.undo()
    assert Store(store).finished(tiny).summary == built_in.summary


# -- the caller's torch

SETTINGS = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "precision of products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, "error"),
    "threads": (torch.get_num_threads, torch.set_num_threads, 2),
    "device": (torch.get_default_device, torch.set_default_device, "meta"),
}
CONTEXTS = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def modes():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("name", [*SETTINGS, *CONTEXTS])
def test_the_callers_settings_change_no_bit_and_are_restored(tiny, tmp_path, name):
    e = tiny.replace(train_size=241, rounds=2, method="vhl", method_options={"surrogate_images": 3})
    get, put, value = SETTINGS.get(name, (lambda: None, lambda value: None, None))
    before = get()
    try:
        put(value)
        during = get()
        surrogate._shared.cache_clear()
        with CONTEXTS.get(name, nullcontext)():
            states = modes()
            result = run(e, store=tmp_path / "set")
            assert states == modes()
        assert get() == during
    finally:
        put(None if name == "device" else before)
    usual = run(e, store=tmp_path / "usual")  # with the data and surrogates that were loaded under the settings
    assert torch.equal(result.parameters, usual.parameters)
    assert result.parameters.dtype == torch.float32 and not result.parameters.is_inference()
    assert result.history.test_loss.equals(usual.history.test_loss)


# -- the machine


def test_the_summary_names_the_machine_and_its_change(tiny, store, monkeypatch, interrupt_after):
    named = store_module.machine()
    assert torch.backends.cpu.get_cpu_capability() in named
    assert f"torch {torch.__version__}" in named and f"numpy {np.__version__}" in named
    interrupt_after(tiny, 2, store)
    monkeypatch.setattr(store_module, "machine", lambda: "another processor")
    assert run(tiny, store=store).summary["machine"] == f"{named} (2 rounds), then another processor (3 rounds)"
    assert run(tiny.replace(seed=1), store=store).summary["machine"] == "another processor"


# -- surrogate images


def test_of_two_threads_that_need_the_same_surrogate_images_one_makes_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path))
    made, both, sets = [], threading.Barrier(2), []
    honest = stylegan._new_images
    monkeypatch.setattr(stylegan, "_new_images", lambda *of: made.append(of) or honest(*of))

    def need():
        both.wait(60)
        sets.append(surrogate.surrogate_set("stylegan", (1, 8, 8), 2, 1, 10**18))

    threads = [threading.Thread(target=need, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == 1 and sets[0] is sets[1]
