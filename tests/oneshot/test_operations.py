"""The operations of the server, counted beforehand, beside those that a run makes."""

import pytest
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from paperlib import Experiment
from paperlib.federated.engines import SEQUENTIAL
from paperlib.oneshot.ensemble import Ensemble
from paperlib.oneshot.fedhydra import AUTHORS
from paperlib.runs.operations import server_operations
from paperlib.runs.prepare import dataset_of, prepare_one_shot
from paperlib.workers import worker_pool

SMALL = {"distill_epochs": 3, "generator_steps": 2, "batch": 8, "latent": 8, "generator_width": 0.06}
E = Experiment(
    dataset="digits", train_size=60, test_size=10, model="cnn2", width=0.25, alpha=1.0, clients=3, sampled=3, rounds=1,
    local_epochs=1, batch_size=32, pixels="unit",
)  # fmt: skip


class Counter(TorchDispatchMode):
    """Adds up the operations of what is called inside; torch's own counter cannot follow a leaf into a layer."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        value = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry:
            self.total += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=value)
        return value


@pytest.mark.filterwarnings("ignore:clients without BatchNorm", "ignore:generators please")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ot", None), ("feddf", {}), ("dense", {}), ("co_boosting", {}), ("fedhydra", {}), ("fedhydra", AUTHORS),
        ("fedhydra", {"teacher": "ae", "train_on": "intermediates"}), ("dense", {"augment": True}),
    ],
)  # fmt: skip
def test_counted_are_the_operations_that_the_server_makes(name, options):
    e = E.replace(method=name, method_options={} if options is None else SMALL | options)
    if name == "dense":
        e = e.replace(client_models=("lenet", "cnn2", "mlp"))
    with worker_pool(1) as pool:
        method, progress, clients = prepare_one_shot(e, dataset_of(e))
        models = clients.models(1, progress.theta, progress.buffers, SEQUENTIAL, pool)
    ensemble = Ensemble(models, clients.shares, 10)
    with Counter() as counter:
        method.start(ensemble, progress, 1)
        before = counter.total
        for t in range(1, method.epochs + 1):
            method.epoch(ensemble, progress, 1, t)
    # but for the sums over clients, which are a matter of ten-thousandths
    assert server_operations(e, (1, 28, 28), 10) == pytest.approx((before, counter.total - before), rel=1e-4)
    assert (counter.total > 0) == (name != "ot")
