"""The methods side by side: source, changes, state, traffic, and combinations.

Nothing of it is written down here. Sources and summaries are the docstrings of the methods, memory and traffic are
counted in two rounds that are played, and combinations are those that `paperlib.methods.build` allows.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import pandas as pd
from torch import Tensor

from paperlib import oneshot, papers
from paperlib.methods import REGISTRY, FedAvg, build, options_of
from paperlib.papers.citations import changes, paper, source
from paperlib.papers.specs import needed
from paperlib.runs.traffic import CLIENTS, TrialRun, trial_run

# The cheapest network that every method accepts.
MODEL, WIDTH = "mlp", 0.25
# Authors and year where they are given, and the title up to its colon or question mark.
NOTE = (
    "P: parameters of the method's network; S: sampled clients. Memory, in P, is the state kept between rounds; up and "
    "down, in P, are what a sampled client sends and receives after the first round. Fractions are statistics, "
    "features or classifiers, counted with an MLP at a quarter of its width and ten classes; their share changes with "
    "the network. What is drawn again from a seed is not kept."
)


@dataclass(frozen=True)
class Card:
    """One method in full.

    what: its docstring. source: the paragraph of its module that cites the paper. options: name -> default. hooks:
        those of FedAvg's that it overrides, of a one-shot method those of `paperlib.oneshot.OneShot` -> what such a
        hook is. equations: what its own functions say they compute, name -> docstring. refused: why it cannot be
        combined with some of the other methods, one sentence each. one_shot: it is a one-shot method.
    """

    name: str
    title: str
    what: str
    source: str
    options: dict[str, Any]
    hooks: dict[str, str]
    refused: tuple[str, ...]
    equations: dict[str, str]
    one_shot: bool = False

    def text(self) -> str:
        """The card as it is printed."""
        parts = [f"{self.name}: {self.title}", self.what, self.source]
        for heading, lines in (
            ("options", [f"{name} = {default!r}" for name, default in self.options.items()]),
            ("hooks it overrides", [f"{hook}: {what}" for hook, what in self.hooks.items()]),
            ("cannot be combined", list(self.refused)),
        ):
            parts.append("\n  ".join([f"{heading}:", *(lines or ["none"])]))
        return "\n\n".join(part for part in parts if part)


def methods() -> pd.DataFrame:
    """All registered methods, one row each, by name. Takes a few seconds: two rounds of each are played.

    Columns: paper, changes (what is different from FedAvg); client_memory and server_memory, the persistent states
    between rounds, and server_memory_per_client, what the server keeps for each sampled client on top, in units of P,
    the number of the network's parameters; up and down, what one sampled client sends and receives per round after the
    first, in models of P parameters; tables (those of `paperlib.papers` with runs of the method). To three decimals;
    `NOTE` says how this is counted.
    """
    rows = {name: _described(name) | costs(name) for name in REGISTRY}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def costs(name: str) -> dict[str, float]:
    """Measure the state and traffic of a method, in models of P parameters: the columns of `methods`, by name."""
    trial = trial_run(name, MODEL, width=WIDTH)
    server, per_client = _server_memory(name, trial)
    return {
        "client_memory": max((_models(state, trial) for state in trial.progress.clients.values()), default=0.0),
        "server_memory": server,
        "server_memory_per_client": per_client,
        "up": round(trial.up[1] / (4 * trial.method.net.size), 3),
        "down": round(trial.down[1] / (4 * trial.method.net.size), 3),
    }


def one_shot_methods() -> pd.DataFrame:
    """The one-shot methods, one row each, by name; columns paper, changes and tables as in `methods`."""
    rows = {name: _described(name) for name in oneshot.REGISTRY}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def _described(name: str) -> dict[str, Any]:
    method = REGISTRY.get(name) or oneshot.REGISTRY[name]
    return {"paper": paper(method), "changes": changes(method), "tables": tables().get(name, "")}


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `methods` as text, for people to read."""
    growing = [f"{_short(number)} S" if number else "" for number in table.server_memory_per_client]
    parts = zip(table.server_memory.map(_short), growing, strict=True)
    columns = {
        "client memory": [_short(value) or "0" for value in table.client_memory],
        "server memory": [" + ".join(filter(None, memory)) or "0" for memory in parts],
        "up": table.up.map(_short),
        "down": table.down.map(_short),
        "tables": table.tables,
        "paper": table.paper,
        "what it changes": table.changes,
    }
    return pd.DataFrame(columns, index=table.index)


def card(name: str) -> Card:
    """One method in full. Raises ValueError for an unknown name."""
    one_shot = name in oneshot.REGISTRY
    method: type = oneshot.REGISTRY[name] if one_shot else type(build(name))
    base = oneshot.OneShot if one_shot else FedAvg
    return Card(
        name,
        method.__name__,
        inspect.cleandoc(method.__doc__ or ""),
        source(method),
        options_of(method),
        {hook: inspect.cleandoc(getattr(base, hook).__doc__).splitlines()[0] for hook in overridden(method, base)},
        _refused_one_shot(name) if one_shot else _refused(name),
        _equations(method, base),
        one_shot,
    )


def _refused(name: str) -> tuple[str, ...]:
    """Return why a method cannot be combined with others, a sentence each."""
    others = [other for other in REGISTRY if other not in (name, "fedavg")]  # all of them contain FedAvg
    pairs = [(name, other) for other in others] + [(other, name) for other in others]
    sentences = [why for outer, base in pairs if (why := refusal(outer, base))]
    # The same words in another order say the same.
    refused = {frozenset(why.replace(":", "").split()): why for why in reversed(sentences)}
    return tuple(reversed(refused.values()))


def _refused_one_shot(name: str) -> tuple[str, ...]:
    refused = ("a one-shot method: it cannot be wrapped around another, and no method of many rounds around it",)
    return refused + ("its clients cannot have networks of their own",) * oneshot.REGISTRY[name].one_architecture


def _equations(method: type, base: type) -> dict[str, str]:
    """Return the docstrings of the functions that a method adds or overrides, most derived class first."""
    docstrings: dict[str, str] = {}
    for kind in method.__mro__[: method.__mro__.index(base)]:
        for name, value in vars(kind).items():
            if inspect.isfunction(value) and name[:2] != "__" and value.__doc__ and name not in docstrings:
                docstrings[name] = inspect.cleandoc(value.__doc__)
    return docstrings


def refusal(outer: str, base: str) -> str:
    """Return why the method ``outer`` cannot be wrapped around the method ``base``; empty if it can."""
    try:
        build(outer, {"base": base})
    except ValueError as error:
        return str(error)
    return ""


def overridden(method: type, base: type = FedAvg) -> list[str]:
    """The hooks that a method changes, in the order in which the base, FedAvg or OneShot, has them."""
    hooks = [
        name for name, value in vars(base).items() if isinstance(value, FunctionType | property) and name[0] != "_"
    ]
    return [name for name in hooks if getattr(method, name) is not getattr(base, name)]


@cache
def tables() -> dict[str, str]:
    """Method -> the tables with runs of it, by paper: "FedGPS T1 T16, GC-Fed T4"."""
    by_method: dict[str, dict[str, list[str]]] = {}
    for key, specs in papers.TABLES.items():
        for table, spec in specs.items():
            runs = needed(spec, 1)
            bases = {e.method_options["base"] for e in runs if "base" in e.method_options}
            for name in {e.method for e in runs} | bases:
                by_method.setdefault(name, {}).setdefault(papers.TITLES[key], []).append(table)
    return {
        name: ", ".join(f"{title} {' '.join(names)}" for title, names in by_paper.items())
        for name, by_paper in by_method.items()
    }


def _short(number: float) -> str:
    """Two decimals where they are needed; empty for nothing, "<0.01" for less than that."""
    if 0 < number < 0.01:
        return "<0.01"
    return f"{number:.2f}".rstrip("0").rstrip(".") if number else ""


def _server_memory(name: str, trial: TrialRun) -> tuple[float, float]:
    """The server's state, and how much it grows with every sampled client, both in models."""
    memory = _models(trial.progress.server, trial)
    if not memory:
        return 0.0, 0.0
    more = trial_run(name, MODEL, width=WIDTH, clients=CLIENTS + 1)
    growth = _models(more.progress.server, more) - memory
    return memory - CLIENTS * growth, growth


def _models(state: Mapping[str, Tensor], trial: TrialRun) -> float:
    """Bytes in models of float32, to three decimals: single numbers are not worth a mention."""
    return round(sum(t.numel() * t.element_size() for t in state.values()) / (4 * trial.method.net.size), 3)
