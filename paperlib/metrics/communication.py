"""What a method sends, counted from the tensors that its hooks hand over."""

import pandas as pd
import torch

from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.federated.simulator import play_round, prepare
from paperlib.federated.workers import worker_pool
from paperlib.methods import REGISTRY

CLIENTS = 2
# Options that make a step cheaper and change nothing that is sent.
CHEAP = {name: {"surrogate_batch": 10, "surrogate_images": 1} for name in ("fedgps", "fedgps_cf", "vhl")} | {
    "creff": {"draw_size": 1, "match_steps": 0, "refit_epochs": 0}
}


def communication(model: str = "resnet18", classes: int = 10, width: float = 1.0) -> pd.DataFrame:
    """Numbers per sampled client and round that each registered method sends, with 32x32 colour images.

    Columns: first and later rounds down and up in bytes (of float32 where the method does not send integers), and later
    rounds relative to FedAvg's model down and up. BatchNorm's statistics, which all methods send, are left out, as in
    FedGPS (Table 5). Two rounds are played with both of two clients, on a few noise images.
    """
    e = Experiment(
        dataset="digits", model=model, width=width, partition="iid", alpha=None, clients=CLIENTS, sampled=CLIENTS,
        rounds=2, batch_size=2, momentum=0.0,
    )  # fmt: skip
    data = _noise(2 * CLIENTS, classes)
    rows = {}
    for name in REGISTRY:
        method, progress = prepare(e.replace(method=name, method_options=CHEAP.get(name, {})), data)
        statistics = 4 * method.net.buffer_size
        row = {"parameters": method.net.size}
        with worker_pool(1) as pool:
            for when in ("first", "later"):
                traffic = play_round(method, progress, pool)
                for way in ("down", "up"):
                    row[f"{when} {way}"] = int(traffic[f"bytes_{way}"] / CLIENTS) - statistics
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    both = table["later down"] + table["later up"]
    return table.assign(relative=(both / (8 * table["parameters"])).round(4))


def _noise(n: int, classes: int) -> Dataset:
    images = torch.randint(0, 256, (n, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(n) % classes
    labels[-1] = classes - 1  # so that there are as many classes
    scale = (0.5,) * 3
    return Dataset("noise", images, labels, images, labels, tuple(map(str, range(classes))), scale, scale, "noise")
