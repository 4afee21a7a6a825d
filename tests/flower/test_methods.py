"""Every method over Flower's messages in one process: the bits of `paperlib.run`, or one sentence before it begins."""

import pytest
import torch

from paperlib import Experiment, run
from paperlib.methods import REGISTRY
from paperlib.workers import worker_pool

pytest.importorskip("flwr", reason="flwr is no package of this project: make flower")

import federation  # noqa: E402
from flwr.app import Context, RecordDict  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

# One client takes part in all rounds, one in the first and the last.
TINY = Experiment(
    dataset="digits", train_size=48, test_size=50, model="cnn", width=0.125, alpha=0.5, clients=5, sampled=3, rounds=3,
    batch_size=6, weight_decay=1e-3, lr_decay=0.9, seed=4,
)  # fmt: skip
SURROGATES = {"surrogate_images": 4, "surrogate_batch": 8}
CHANGES = {
    "fedgps": {"method_options": SURROGATES},
    "fedgps_cf": {"method_options": SURROGATES},
    "vhl": {"method_options": SURROGATES},
    "creff": {"method_options": {"match_steps": 2, "refit_epochs": 2, "m": 4, "draws": 2}},
    "delta_sgd": {"momentum": 0.0},
}


class Nodes(Grid):
    """Two nodes, each with the state of its own clients; every message is answered at once, in the opposite order."""

    def __init__(self):
        self.app, self.sent = federation.client_app(), 0
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}) for node in (7, 3)
        }

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *arguments, **options):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            federation.prepared.cache_clear()  # every visit is a process of its own
            replies.append(self.app(message, self.contexts[message.metadata.dst_node_id]))
        self.sent += len(replies)
        return replies[::-1]


@pytest.fixture(autouse=True)
def server(monkeypatch):
    """Messages name the task that sends them."""
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def played(e: Experiment) -> tuple[federation.Federated, Nodes]:
    nodes = Nodes()
    with worker_pool(1) as pool:
        strategy = federation.Federated(e, 2, pool)
        strategy.start(nodes, strategy.arrays, e.rounds, evaluate_fn=strategy.evaluate)
    return strategy, nodes


def assert_same(e: Experiment, store) -> federation.Federated:
    strategy, _ = played(e)
    expected = run(e, store=store, workers=1)
    theta = federation.unpacked(strategy.arrays)["theta"]
    assert torch.equal(theta.nan_to_num(), expected.parameters.nan_to_num())
    rows = expected.history.dropna(subset="test_accuracy")
    for name in ("round", "test_accuracy", "test_loss"):
        assert [row[name] for row in strategy.rows] == rows[name].tolist()
    return strategy


@pytest.mark.parametrize("method", REGISTRY)
def test_a_run_over_messages_has_the_bits_of_a_run_here(tmp_path, method):
    assert_same(TINY.replace(method=method, **CHANGES.get(method, {})), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "feddyn", "momentum_buffer": "keep", "weighting": "size"},
        {"method": "gc_fed", "method_options": {"base": "scaffold"}, "eval_every": 2, "clip": 0.5},
        {"method": "fedavgm", "precision": "bfloat16", "augment": True},
    ],
    ids=["kept momentum", "two methods", "bfloat16"],
)
def test_so_has_a_run_of_another_setting(tmp_path, changes):
    assert_same(TINY.replace(**changes), tmp_path)


def test_a_run_that_diverges_ends_where_it_does_here(tmp_path):
    strategy = assert_same(TINY.replace(lr=1e18, rounds=4), tmp_path)
    assert 0 < strategy.progress.round < 4 and not strategy.progress.finite


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "fedhydra", "sampled": 5}, "fedhydra cannot run on Flower: its server trains on the clients' mod"),
        ({"measure": ("weight_divergence",)}, "measure is .'weight_divergence',., but must be empty on Flower: local"),
    ],
)
def test_what_flower_cannot_play_is_refused_before_a_message_is_sent(changes, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        played(TINY.replace(**changes))
    assert "\n" not in str(error.value)
