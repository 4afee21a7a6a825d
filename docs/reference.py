"""The pages of reference, made from the code: fields of Experiment, hooks, methods with their options, commands."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from paperlib import Experiment
from paperlib.cli import app
from paperlib.experiment import DEFAULTS
from paperlib.federated.method import FedAvg
from paperlib.methods import REGISTRY
from paperlib.oneshot import REGISTRY as ONE_SHOT
from paperlib.oneshot import OneShot
from paperlib.papers import citations
from paperlib.reports import method_table


def experiment() -> str:
    """Every field with its kind and default, and what the class says of them."""
    rows = [(f"`{f.name}`", f"`{_kind(f.type)}`", f"`{DEFAULTS[f.name]!r}`") for f in dataclasses.fields(Experiment)]
    head = "# Experiment\n\nOne run, described completely: `paperlib.Experiment(field=value, ...)`.\n\n"
    return head + _table(("field", "kind", "default"), rows) + "\n" + _quoted(Experiment)


def hooks() -> str:
    """The hooks that a method may override, with their signatures, for methods of many rounds and one-shot ones."""
    parts = ["# Hooks\n\nA method is FedAvg with some of these changed; what they get and give is tensors.\n"]
    for kind in (FedAvg, OneShot):
        parts.append(f"## {kind.__name__}\n\n{_quoted(kind)}")
        for name, hook in vars(kind).items():
            if inspect.isfunction(hook) and name[0] != "_":
                parts.append(f"### `{name}{inspect.signature(hook)}`\n\n{_quoted(hook)}")
    return "\n".join(parts)


def methods() -> str:
    """Every method: what it changes, its paper, its options and the hooks that it overrides."""
    parts = ["# Methods\n\n`Experiment(method=name, method_options={...})`; `paperlib methods name` says more.\n"]
    for name in (*REGISTRY, *ONE_SHOT):
        kind = REGISTRY.get(name) or ONE_SHOT[name]
        card = method_table.card(name)
        parts.append(f"## {name}\n\n{_plain(citations.changes(kind))} {_plain(citations.paper(kind))}\n")
        parts.append("<details><summary>In full, with options and hooks</summary>\n")  # else the page has no end
        parts.append(_quoted(kind))
        parts.append(_table(("option", "default"), [(f"`{o}`", f"`{d!r}`") for o, d in card.options.items()]))
        parts.append(_table(("hook it overrides", ""), [(f"`{h}`", _plain(said)) for h, said in card.hooks.items()]))
        parts.append("</details>\n")
    return "\n".join(part for part in parts if part)


def commands() -> str:
    """Every command of the command line with its arguments and options."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    parts = ["# Commands\n"]
    for name, command in sorted(group.commands.items()):
        rows = []
        for parameter in command.params:
            flags = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
            default = "" if parameter.default in (None, False) or callable(parameter.default) else parameter.default
            said = str(getattr(parameter, "help", None) or "")
            rows.append((flags, _plain(said), f"`{default}`" if default != "" else ""))
        parts.append(f"## paperlib {name}\n\n{_plain(inspect.cleandoc(command.help or ''))}\n")
        parts.append(_table(("argument or option", "what it is", "default"), rows))
    return "\n".join(parts)


PAGES: Mapping[str, Callable[[], str]] = {f.__name__: f for f in (experiment, hooks, methods, commands)}


def _kind(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _quoted(documented: object) -> str:
    """A docstring as it stands: its columns and symbols are not Markdown."""
    return f"```text\n{inspect.getdoc(documented) or ''}\n```\n"


def _plain(text: str) -> str:
    """A text on one line, in which no sign means anything to Markdown."""
    return " ".join(text.split()).translate({ord(sign): f"\\{sign}" for sign in "\\*_<>[]|$#"})


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else ""
