"""GC-Fed: tables of its notation and resources, generated from the code and from the runs of its tables."""

import inspect
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import pandas as pd

from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.methods import REGISTRY
from paperlib.methods.catalogue import changes, paper
from paperlib.networks import Network, build
from paperlib.papers.gc_fed.setting import METHODS
from paperlib.papers.rows import TITLES

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


def notation(runs: Sequence[Experiment]) -> pd.DataFrame:
    """Table 1; raises LookupError for a name that is not in the code."""
    rows = {}
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


def resources(runs: Sequence[Experiment]) -> pd.DataFrame:
    """Table 3: the data sets, networks and methods of the runs, and their use."""
    rows: dict[str, tuple[str, ...]] = {}
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
    for name, (registered, _) in METHODS.items():
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
