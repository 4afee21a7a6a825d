"""Write data/paper/descriptions: the papers' tables that describe methods and settings, from the code and the runs.

    python docs/studies/descriptions.py

A test compares the files with what this script makes.
"""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import pandas as pd
from torch import Tensor

from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.federated.local import train_client
from paperlib.federated.simulator import Round
from paperlib.methods import PACKAGE, REGISTRY
from paperlib.networks import Network, build
from paperlib.papers import TABLES, settings
from paperlib.papers.citations import changes, paper
from paperlib.papers.fedimpro import setting as fedimpro
from paperlib.papers.gc_fed import setting as gc_fed
from paperlib.papers.printed import printed_table
from paperlib.papers.rows import TITLES, Row, printed_rows
from paperlib.papers.specs import TableSpec, described_in
from paperlib.runs.traffic import trial_run

# -- GC-Fed

METHOD, RUN = "paperlib.federated.method:FedAvg", "paperlib.experiment:Experiment"
# Symbol -> meaning, place in the code, and the field of the runs with its values.
SYMBOLS: dict[str, tuple[str, str, str]] = {
    "w": ("parameters of the model, one flat vector", f"{METHOD}.loss(theta)", ""),
    "Δ": ("update of a model by local training", f"{METHOD}.end", ""),
    "G": ("local gradient", f"{METHOD}.gradient", ""),
    "P": ("centralization, a projection", "paperlib.methods.gc:Centralized.center", ""),
    "ℓ(w; ξ)": ("loss on a sample", f"{METHOD}.logit_loss", ""),
    "ξ_kj": ("a sample of a client", "paperlib.federated.context:Batch.x", ""),
    "F(w)": ("global objective", "", ""),
    "F_k(w)": ("objective of a client", f"{METHOD}.loss", ""),
    "p_k": ("weight of a client", f"{METHOD}.weights", "weighting"),
    "n_k": ("samples of a client", "paperlib.federated.context:Context.sizes", ""),
    "N": ("clients", f"{RUN}.clients", "clients"),
    "C": ("share of the clients in a round, K / N", "", ""),
    "K": ("clients in a round", f"{RUN}.sampled", "sampled"),
    "𝒦": ("the clients of a round", f"{METHOD}.weights(cohort)", ""),
    "E": ("local epochs", f"{RUN}.local_epochs", "local_epochs"),
    "R": ("communication rounds", f"{RUN}.rounds", "rounds"),
    "η": ("learning rate of local SGD", f"{RUN}.lr", "lr"),
    "α": ("concentration of the Dirichlet partition", f"{RUN}.alpha", "alpha"),
    "λ": ("border between local and global centralization", "paperlib.methods.gc:GCFed.border", ""),
}  # fmt: skip


def printed_runs() -> list[Experiment]:
    """Return the runs of one seed of all that GC-Fed's tables print, without our additions."""
    specs = [spec for name, spec in TABLES["gc_fed"].items() if isinstance(spec, TableSpec) and name[0] == "T"]
    return [e for spec in specs for cell in spec.cells(1) for e in cell.experiments]


def notation() -> pd.DataFrame:
    """Return Table 1 of GC-Fed; raises LookupError for a name that is not in the code."""
    rows, runs = {}, printed_runs()
    for symbol, (what, name, field) in SYMBOLS.items():
        code, says = located(name) if name else ("(nowhere)", "")
        values = sorted({getattr(e, field) for e in runs}) if field else []
        rows[symbol] = (what, code, says, ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values))
    columns = ["what it is", "in the code", "its docstring", "in the tables"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("symbol")


def located(name: str) -> tuple[str, str]:
    """Name and first sentence of the docstring of ``module:Class.part`` or ``module:Class.part(argument)``.

    Raises LookupError if it does not exist.
    """
    module, _, path = name.partition(":")
    path, _, argument = path.partition("(")
    class_name, part = path.split(".")
    owner = getattr(import_module(module), class_name)
    attribute: Any = getattr(owner, part, None)
    fields = {field for base in owner.__mro__ for field in vars(base).get("__annotations__", {})}
    if attribute is None and part not in fields and part not in owner.__init__.__code__.co_names:
        raise LookupError(f"{class_name} has no {part}")
    if not callable(attribute):
        return f"{class_name}.{part}", ""
    if argument and argument.removesuffix(")") not in inspect.signature(attribute).parameters:
        raise LookupError(f"{path} has no argument {argument.removesuffix(')')}")
    says = "" if argument else re.split(r"[.;](?:\s|$)", inspect.cleandoc(attribute.__doc__ or ""))[0].replace("`", "")
    return name.partition(":")[2].replace("(", ", argument ").removesuffix(")"), says


def resources() -> pd.DataFrame:
    """Return Table 3 of GC-Fed: the data sets, networks and methods of the runs, and their use."""
    rows: dict[str, tuple[str, ...]] = {}
    runs = printed_runs()
    for name in _unique(e.dataset for e in runs):
        info, own = DATASETS[name], [e for e in runs if e.dataset == name]
        pixels = f"{info.size}x{info.size} pixels, {'gray' if info.channels == 1 else 'color'}"
        what = f"{info.classes} classes, {info.train:,} training and {info.test:,} test images of {pixels}"
        rows[info.title] = ("data", what, _join(e.model for e in own), *_use(own))
    for name in _unique(e.model for e in runs):
        own = [e for e in runs if e.model == name]
        nets = {data: _network(name, data) for data in _unique(e.dataset for e in own)}
        sizes = [f"{net.size:,} parameters ({DATASETS[data].title})" for data, net in nets.items()]
        rows[name] = ("network", f"{_layers(next(iter(nets.values())))}; {', '.join(sizes)}",
                      _join(TITLES.get(e.dataset, DATASETS[e.dataset].title) for e in own), *_use(own))  # fmt: skip
    for name, (registered, _) in gc_fed.METHODS.items():
        own = [e for e in runs if registered in (e.method, e.method_options.get("base"))]
        method = REGISTRY[registered]
        source = f" ({paper(method)})" if paper(method) else ""
        rows[name] = ("method", changes(method) + source, _join(e.model for e in own), *_use(own))
    columns = ["type", "what it is", "with", "clients of all in a round", "rounds"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("name")


def _network(model: str, dataset: str) -> Network:
    info = DATASETS[dataset]
    return build(model, (info.channels, info.size, info.size), info.classes)


def _layers(net: Network) -> str:
    kinds = {4: "convolutions", 2: "linear layers"}
    counts = {what: sum(len(t.shape) == dims for t in net.tensors) for dims, what in kinds.items()}
    return ", ".join(f"{count} {what if count > 1 else what[:-1]}" for what, count in counts.items() if count)


def _use(runs: Sequence[Experiment]) -> tuple[str, str]:
    pairs = sorted({(e.clients, e.sampled) for e in runs})
    return ", ".join(f"{k}/{n}" for n, k in pairs), ", ".join(map(str, sorted({e.rounds for e in runs})))


def _join(names: Iterable[str]) -> str:
    return ", ".join(_unique(names))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


# -- FedGPS

CLASSES, FEATURES = 10, 512  # of Table 5's example, CIFAR-10 with ResNet-18
VARIANT = {"FedAvg": "fedavg", "FedGPS": "fedgps"}


def communication_costs() -> pd.DataFrame:
    """Return Table 5 of FedGPS: the printed formulas, their values, and our counts in the first and in later rounds.

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
    relative = (table["later rounds"] * 8 / fedavg).map("{:.4f}".format)
    return table.assign(relative=relative).set_index(["method", "way"])


def scalars(formula: str, model: int) -> str:
    """``2M+C*512`` in numbers."""
    terms = {"M": model, "2M": 2 * model, "C*512": CLASSES * FEATURES}
    return f"{sum(terms[term] for term in formula.split('+')):,}" if formula else ""


COLUMNS = {"lr": "learning rate", "momentum": "momentum", "weight_decay": "weight decay"}


def hyperparameters() -> pd.DataFrame:
    """Return Table 7 of FedGPS: those of every method on CIFAR-10, given or left open by the paper."""
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


# -- FedImpro


def shared_things() -> pd.DataFrame:
    """Return Table 4 of FedImpro: what a sampled client receives and sends beyond the model, and traffic in models."""
    rows: dict[str, dict[str, Any]] = {}
    for name, method in PACKAGE.items():
        seen = trial_run(name, "mlp", width=0.25)
        model = 4 * seen.method.net.size
        down, up = seen.down[1] / model, seen.up[1] / model
        if max(down, up) <= 1:
            continue
        round = Round(seen.method, seen.progress)
        upload = train_client(round.start(round.cohort[0])).upload
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


def of_table_1() -> list[dict[str, Any]]:
    """Return the printed numbers of FedImpro's Table 1, without averages."""
    chosen = printed_rows("fedimpro", "T1", ("test_accuracy",), fedimpro.METHODS)
    return [row for row in chosen if row["scenario"] != "average"]


def learning_rates() -> pd.DataFrame:
    """Return Table 5 of FedImpro, a row per setting; read off the runs."""
    rows: dict[str, dict[str, str]] = {}
    for row in of_table_1():
        label = f"{TITLES[row['dataset']]} a={row['alpha']:g} E={row['local_epochs']:.0f} K={row['clients']:.0f}"
        rows.setdefault(label, {})[row["method"]] = f"{fedimpro.experiment(row, 0).lr:g}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("setting")


# printed name -> field of the Experiment, or of the data set
FIELDS = {"sampled_clients": "sampled"}
SEARCHED = {"grid": ", searched", "chosen": ", the best"}
COUNTS = {"train_samples": "train", "test_samples": "test"}


def stated_settings() -> pd.DataFrame:
    """Return the numbers of sections E.2 and F.3 beside those of our runs of Table 1 and FEMNIST."""
    natural = [{**fedimpro.FEMNIST, "method": method} for method in fedimpro.COMPARED if method != "SCAFFOLD"]
    table_rows = []
    for table, section, where in (("E", "E.2", of_table_1()), ("F.3", "F.3", natural)):
        for printed in printed_table("fedimpro", table).to_dict("records"):
            row = {str(name): value for name, value in printed.items()}
            runs = [fedimpro.experiment(r, 0) for r in where if _about(row, r)]
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
    """Return True if a printed number applies to a setting: its clients and local epochs are equal or not stated."""
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


# -- all

MADE = {
    "gc_fed": {"T1": notation, "T3": resources},
    "fedgps": {"T5": communication_costs, "T7": hyperparameters},
    "fedimpro": {"T4": shared_things, "T5": learning_rates, "setting": stated_settings},
}


def write() -> None:
    """Write a file for every table."""
    for name_of_paper, tables in MADE.items():
        for name, make in tables.items():
            file = described_in(name_of_paper, name)
            file.parent.mkdir(exist_ok=True)
            make().to_csv(file)


if __name__ == "__main__":
    write()
