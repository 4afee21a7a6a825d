"""Trial runs of methods on noise, and the traffic that they show: bytes of the tensors that hooks return."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods import REGISTRY, FedAvg, options_of
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

CLIENTS = 2
# Options that shorten a method's work before and after the clients; those that shorten its local steps, which still
# send as much.
CHEAP = {"surrogate_images": 1, "match_steps": 0, "refit_epochs": 0}
CHEAP_STEPS = CHEAP | {"surrogate_batch": 10, "draw_size": 1}


@dataclass(frozen=True)
class TrialRun:
    """The first rounds of a method on noise, in which all clients took part.

    down, up: bytes per client in each round, without BatchNorm's statistics.
    """

    method: FedAvg
    progress: Progress
    down: list[int]
    up: list[int]


def communication(model: str = "resnet18", classes: int = 10, width: float = 1.0) -> pd.DataFrame:
    """Traffic per sampled client and round of each registered method, with 32x32 colour images.

    Columns: bytes down and up in the first and in later rounds, and later rounds relative to the method's own model
    down and up. BatchNorm's statistics, which all methods send, are left out, as in FedGPS (Table 5). Counted in two
    rounds of one client, which has two noise images.
    """
    rows = {}
    for name in REGISTRY:
        seen = trial_run(name, model, classes, width, clients=1)
        row = {"parameters": seen.method.net.size}
        for i, when in enumerate(("first", "later")):
            row |= {f"{when} down": seen.down[i], f"{when} up": seen.up[i]}
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    both = table["later down"] + table["later up"]
    return table.assign(relative=(both / (8 * table["parameters"])).round(4))


def trial_run(
    name: str,
    model: str,
    classes: int = 10,
    width: float = 1.0,
    *,
    clients: int = CLIENTS,
    images: int = 2,
    batch_size: int = 2,
    rounds: int = 2,
    cheap: Mapping[str, Any] = CHEAP_STEPS,
) -> TrialRun:
    """Run the first rounds of the method ``name`` with its default options, but for the cheap ones among them.

    images: of each client.
    """
    e = Experiment(
        dataset="digits", model=model, width=width, partition="iid", alpha=None, clients=clients, sampled=clients,
        rounds=2, batch_size=batch_size, momentum=0.0, method=name, method_options=own_options(name, cheap),
    )  # fmt: skip
    method, progress = prepare(e, noise(images * clients, classes))
    statistics = 4 * method.net.buffer_size
    with worker_pool(1) as pool:
        traffic = [play_round(method, progress, pool) for _ in range(rounds)]
    down, up = ([int(sent[f"bytes_{way}"] / clients) - statistics for sent in traffic] for way in ("down", "up"))
    return TrialRun(method, progress, down, up)


def own_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the options that a method has."""
    return {name: value for name, value in options.items() if name in options_of(REGISTRY[method])}


def noise(n: int, classes: int, shape: tuple[int, int, int] = (3, 32, 32)) -> Dataset:
    """A data set of n noise images with a shape (channels, height, width), the same for training and testing."""
    images = torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(n) % classes
    labels[-1] = classes - 1  # so that there are as many classes
    scale = (0.5,) * shape[0]
    return Dataset("noise", images, labels, images, labels, tuple(map(str, range(classes))), scale, scale, "noise")
