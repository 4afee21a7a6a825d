"""The traffic of a method, counted from the tensors that its hooks return."""

from dataclasses import dataclass

import pandas as pd
import torch

from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods import REGISTRY, FedAvg
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

CLIENTS = 2
# Options that make a step cheaper without changing the traffic.
CHEAP = {name: {"surrogate_batch": 10, "surrogate_images": 1} for name in ("fedgps", "fedgps_cf", "vhl")} | {
    "creff": {"draw_size": 1, "match_steps": 0, "refit_epochs": 0}
}


@dataclass(frozen=True)
class Played:
    """Two rounds of a method in which all clients took part, each with two noise images.

    down, up: bytes per client in the first round and in the second, without BatchNorm's statistics.
    """

    method: FedAvg
    progress: Progress
    down: tuple[int, int]
    up: tuple[int, int]


def communication(model: str = "resnet18", classes: int = 10, width: float = 1.0) -> pd.DataFrame:
    """Traffic per sampled client and round of each registered method, with 32x32 colour images.

    Columns: bytes down and up in the first and in later rounds, and later rounds relative to FedAvg's model down and
    up. BatchNorm's statistics, which all methods send, are left out, as in FedGPS (Table 5). Counted in two rounds with
    two clients on a few noise images.
    """
    rows = {}
    for name in REGISTRY:
        seen = played(name, model, classes, width)
        row = {"parameters": seen.method.net.size}
        for i, when in enumerate(("first", "later")):
            row |= {f"{when} down": seen.down[i], f"{when} up": seen.up[i]}
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    both = table["later down"] + table["later up"]
    return table.assign(relative=(both / (8 * table["parameters"])).round(4))


def played(name: str, model: str, classes: int = 10, width: float = 1.0, clients: int = CLIENTS) -> Played:
    """Two rounds of the method ``name`` with its default options, except for options that only cost time."""
    e = Experiment(
        dataset="digits", model=model, width=width, partition="iid", alpha=None, clients=clients, sampled=clients,
        rounds=2, batch_size=2, momentum=0.0, method=name, method_options=CHEAP.get(name, {}),
    )  # fmt: skip
    method, progress = prepare(e, noise(2 * clients, classes))
    statistics = 4 * method.net.buffer_size
    with worker_pool(1) as pool:
        traffic = [play_round(method, progress, pool) for _ in range(2)]
    down, up = ([int(t[f"bytes_{way}"] / clients) - statistics for t in traffic] for way in ("down", "up"))
    return Played(method, progress, (down[0], down[1]), (up[0], up[1]))


def noise(n: int, classes: int, shape: tuple[int, int, int] = (3, 32, 32)) -> Dataset:
    """A data set of n noise images with a shape (channels, height, width), the same for training and testing."""
    images = torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(n) % classes
    labels[-1] = classes - 1  # so that there are as many classes
    scale = (0.5,) * shape[0]
    return Dataset("noise", images, labels, images, labels, tuple(map(str, range(classes))), scale, scale, "noise")
