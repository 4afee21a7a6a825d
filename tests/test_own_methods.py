"""A method that is registered in a notebook or script runs wherever the package's own methods run."""

import subprocess
import sys
import threading

import pytest

from paperlib import Experiment
from paperlib.methods import REGISTRY, FedAvg
from paperlib.runs import own_methods

# Typed in, like the cells of a notebook: Python has no file of it.
HALF = '''
from paperlib.methods import FedAvg

FACTOR = 0.5

class Half(FedAvg):
    """FedAvg with half of every update."""

    factor: float = FACTOR

    def end(self, theta_0, theta, shared, own, visit):
        upload, own = super().end(theta_0, theta, shared, own, visit)
        upload["delta"] *= self.factor
        return upload, own
'''
TYPED = (
    HALF
    + """
import sys
from paperlib import Experiment, run
from paperlib.runs.background import BackgroundRun
from paperlib.methods import REGISTRY
from paperlib.runs import own_methods
from paperlib.runs.store import Store

REGISTRY["half"] = Half
e = Experiment(dataset="digits", model="mlp", width=0.25, clients=5, sampled=2, rounds=2, batch_size=50, method="half")
grid = [e, e.replace(method="gc_fed", method_options={"base": "half"})]
folder = sys.argv[1]

def same(runs):
    alone = [run(e, store=f"{folder}/alone") for e in grid]
    assert all((a.parameters == b.parameters).all() for a, b in zip(alone, runs, strict=True))
"""
)
CALLS = {
    "a process of its own": """
store = Store(f"{folder}/apart")
for e in grid:
    child = BackgroundRun(e, store)
    child._process.join(120)
    assert not child.error, child.error
same([store.finished(e) for e in grid])
""",
    "method card": """
from paperlib.teaching import widgets
view = widgets.method_card("half").view
assert "FedAvg with half of every update." in view.words and "end" in view.more, view.words
""",
}


@pytest.mark.parametrize("where", CALLS)
def test_a_method_of_a_notebook_has_the_same_bits_everywhere(where, tmp_path):
    done = subprocess.run([sys.executable, "-c", TYPED + CALLS[where], str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_method_of_a_module_travels_by_its_name(monkeypatch):
    monkeypatch.setitem(REGISTRY, "local", Local)
    packed = own_methods.pack([Experiment(method="local"), Experiment(method="scaffold")])
    assert __name__.encode() in packed and b"theta_0" not in packed
    monkeypatch.delitem(REGISTRY, "local")
    own_methods.register(packed)
    assert REGISTRY.pop("local") is Local
    assert own_methods.pack([Experiment(method="gc_fed", method_options={"base": "fedprox"})]) == b""


def test_what_cannot_be_sent_is_refused_in_a_sentence(monkeypatch):
    class Locked(FedAvg):
        lock = threading.Lock()

    monkeypatch.setitem(REGISTRY, "locked", Locked)
    with pytest.raises(ValueError, match="method 'locked' cannot be sent to other processes .* jobs=1"):
        own_methods.pack([Experiment(method="locked")])


class Local(FedAvg):
    def end(self, theta_0, theta, shared, own, visit):
        return super().end(theta_0, theta, shared, own, visit)
