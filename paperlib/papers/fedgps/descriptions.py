"""Tables 5 and 7 of FedGPS, traffic and hyperparameters, generated from the code and its settings."""

import re

import pandas as pd

from paperlib.papers import settings
from paperlib.papers.printed import printed_table
from paperlib.runs.traffic import trial_run

CLASSES, FEATURES = 10, 512  # of Table 5's example, CIFAR-10 with ResNet-18
VARIANT = {"FedAvg": "fedavg", "FedGPS": "fedgps"}


def communication_costs() -> pd.DataFrame:
    """Table 5: the printed formulas, their values, and our counts in the first and in later rounds.

    Numbers per sampled client. FedGPS-CF is added; section B.1 states its costs in the text.
    """
    counted = {name: trial_run(name, "resnet18", CLASSES) for name in ("fedavg", "fedgps", "fedgps_cf")}
    fedavg = sum(counted["fedavg"].down[1:] + counted["fedavg"].up[1:])
    rows = []
    for way in ("download", "upload"):
        printed = printed_table("fedgps", "T5").query("metric.str.contains(@way)").set_index("method").note
        formulas = {VARIANT[str(name)]: re.findall(r"symbolic: (\S+)", note)[0] for name, note in printed.items()}
        for name, seen in counted.items():
            formula, bytes_ = formulas.get(name, ""), seen.down if way == "download" else seen.up
            model = seen.method.net.size
            rows.append((way, name, formula, scalars(formula, model), bytes_[0] // 4, bytes_[1] // 4))
    columns = ["way", "method", "printed", "printed formula", "first round", "later rounds"]
    table = pd.DataFrame(rows, columns=columns).replace({"method": {v: k for k, v in VARIANT.items()}})
    table = table.replace({"method": {"fedgps_cf": "FedGPS-CF"}})
    return table.assign(relative=(table["later rounds"] * 8 / fedavg).round(4)).set_index(["method", "way"])


def scalars(formula: str, model: int) -> str:
    """``2M+C*512`` in numbers."""
    terms = {"M": model, "2M": 2 * model, "C*512": CLASSES * FEATURES}
    return f"{sum(terms[term] for term in formula.split('+')):,}" if formula else ""


COLUMNS = {"lr": "learning rate", "momentum": "momentum", "weight_decay": "weight decay"}


def hyperparameters() -> pd.DataFrame:
    """Table 7: hyperparameters of every method on CIFAR-10, divided into given and left open by the paper."""
    known = [row for row in settings.rows("fedgps") if row.dataset == ""]
    rows = {}
    for method in dict.fromkeys(row.method for row in known):
        chosen = settings.setting("fedgps", "FedAvg" if method == "all" else method, "cifar10").training
        rows[method] = {title: f"{chosen[name]:g}" for name, title in COLUMNS.items()}
        own = [
            row
            for row in known
            if row.method == method and row.kind and (row.kind != "training" or row.name not in COLUMNS)
        ]
        given = [f"{row.name} = {row.value}" for row in own if row.origin == "paper"]
        open_ = [f"{row.name} = {row.value} ({row.origin})" for row in own if row.origin != "paper"]
        rows[method] |= {"given by the paper": ", ".join(given), "left open by the paper": ", ".join(open_)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
