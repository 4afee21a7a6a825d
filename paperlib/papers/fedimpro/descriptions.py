"""FedImpro: descriptions, generated from the registry and from the runs' settings."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from torch import Tensor

from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.federated.local import train_client
from paperlib.federated.simulator import Round
from paperlib.methods import REGISTRY
from paperlib.methods.catalogue import paper
from paperlib.papers.fedimpro.setting import COMPARED, FEMNIST, METHODS, experiment
from paperlib.papers.printed import printed_table
from paperlib.papers.rows import TITLES, Row, printed_rows
from paperlib.runs.traffic import trial_run


def shared_things() -> pd.DataFrame:
    """Per method: tensors beyond the model that a sampled client receives and sends, and the traffic in models."""
    rows: dict[str, dict[str, Any]] = {}
    for name, method in REGISTRY.items():
        seen = trial_run(name, "mlp", width=0.25)
        model = 4 * seen.method.net.size
        down, up = seen.down[1] / model, seen.up[1] / model
        if max(down, up) <= 1:
            continue
        round = Round(seen.method, seen.progress)
        upload = train_client(*round.start(round.cohort[0])).upload
        rows[name] = {
            "receives": _named(round.shared),
            "sends": _named({key: value for key, value in upload.items() if key != "delta"}),
            "down (models)": f"{down:.3f}",
            "up (models)": f"{up:.3f}",
            "paper": paper(method),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def _named(tensors: Mapping[str, Tensor]) -> str:
    """``mu [10, 50], s [10, 50]``."""
    return ", ".join(f"{key} {list(value.shape)}" for key, value in tensors.items())


def learning_rates() -> pd.DataFrame:
    """Table 5, a row per setting; read off the runs."""
    rows: dict[str, dict[str, str]] = {}
    for row in printed_rows("fedimpro", "T1", ("test_accuracy",), METHODS, lambda r: r["scenario"] != "average"):
        label = f"{TITLES[row['dataset']]} a={row['alpha']:g} E={row['local_epochs']:.0f} K={row['clients']:.0f}"
        rows.setdefault(label, {})[row["method"]] = f"{experiment(row, 0).lr:g}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("setting")


# printed name -> field of the Experiment, or of the data set
FIELDS = {"sampled_clients": "sampled"}
SEARCHED = {"grid": ", searched", "chosen": ", the best"}
COUNTS = {"train_samples": "train", "test_samples": "test"}


def settings() -> pd.DataFrame:
    """The numbers of sections E.2 and F.3 beside those of our runs of Table 1 and FEMNIST."""
    basic = printed_rows("fedimpro", "T1", ("test_accuracy",), METHODS, lambda r: r["scenario"] != "average")
    natural = [{**FEMNIST, "method": method} for method in COMPARED if method != "SCAFFOLD"]
    table_rows = []
    for table, section, where in (("E", "E.2", basic), ("F.3", "F.3", natural)):
        for printed in printed_table("fedimpro", table).to_dict("records"):
            row = {str(name): value for name, value in printed.items()}
            runs = [experiment(r, 0) for r in where if _about(row, r)]
            table_rows.append(
                {
                    "section": section,
                    "of": _of(row),
                    "what": row["metric"].replace("_", " ") + SEARCHED.get(row["setting"], ""),
                    "printed": f"{row['value']:.10g}",
                    "ours": _ours(row, runs),
                }
            )
    return pd.DataFrame(table_rows).set_index("section")


def _about(printed: Row, row: Row) -> bool:
    """Whether a printed number applies to a setting: its clients and local epochs are equal or not stated."""
    return all(pd.isna(printed[name]) or printed[name] == row[name] for name in ("clients", "local_epochs"))


def _of(row: Row) -> str:
    if row["dataset"]:
        return TITLES[row["dataset"]]
    return "all" if pd.isna(row["clients"]) else f"K={row['clients']:.0f} E={row['local_epochs']:.0f}"


def _ours(row: Row, runs: list[Experiment]) -> str:
    """The values of the runs; for a learning rate, the number of runs that have it."""
    metric = str(row["metric"])
    if metric == "learning_rate":
        return f"in {sum(e.lr == row['value'] for e in runs)} of {len(runs)} runs"
    if metric in COUNTS:
        return str(getattr(DATASETS[row["dataset"]], COUNTS[metric]))
    return ", ".join(f"{value:.10g}" for value in sorted({getattr(e, FIELDS.get(metric, metric)) for e in runs}))
