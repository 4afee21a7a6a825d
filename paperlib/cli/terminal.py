"""The application, what it prints to a terminal, and its answers to bad input."""

import contextlib
import gc
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from paperlib.checks import one_line

CORES = os.cpu_count() or 1
SHORT = 24  # characters of a column that is not folded
WIDE = 150  # characters per line, from which on less important columns are shown
Jobs = Annotated[int, typer.Option(help="processes that work on different runs side by side")]
app = typer.Typer(no_args_is_help=True)
console, errors = Console(), Console(stderr=True)


answer: dict[str, list[Any]] = {}  # with --json: what is printed in the end, tables and notes


def _in_json(wanted: bool) -> None:
    answer.clear()
    if wanted:
        answer.update(tables=[], notes=[])


Json = Annotated[bool, typer.Option("--json", callback=_in_json, help="print one JSON object, for programs")]


def say(text: object) -> None:
    """Print a text as it is; the terminal wraps it."""
    if answer:
        answer["notes"].append(str(text))
    else:
        console.print(text, soft_wrap=True, markup=False, highlight=False)


def print_frame(frame: Any, title: str = "") -> None:
    """Print a table, its index first: short columns whole, numbers to the right, long texts folded."""
    if answer:
        flat = frame.set_axis([" | ".join(c) if isinstance(c, tuple) else c for c in frame], axis="columns")
        records = flat.reset_index(names=frame.index.name or "row").to_json(orient="records")
        answer["tables"].append({"title": title, "rows": json.loads(records)})
        return
    view = Table(box=SIMPLE, title=escape(title) or None, title_justify="left")
    texts = frame.reset_index(names=str(frame.index.name or ""))
    texts = texts.map(lambda x: x if isinstance(x, Text) else Text(f"{x:.4g}" if isinstance(x, float) else str(x)))
    most = min(SHORT, console.width // len(texts.columns))
    for name, column in texts.items():
        short = all(len(text) <= most for text in (*column, *str(name).split(", ")))
        number = sum(text.plain[:1] in "+-<0123456789" for text in column) > len(column) / 2
        heading = Text(str(name).replace(", ", "\n"))
        view.add_column(heading, justify="right" if short and number else "left", no_wrap=short, overflow="fold")
    for row in texts.itertuples(index=False, name=None):
        view.add_row(*row)
    console.print(view)


@contextlib.contextmanager
def sentences(stopped: str = "the same command continues from here") -> Iterator[None]:
    """Answer bad input with its sentence and not with a traceback, like a full disk or a process that was killed.

    Answer Ctrl-C, or a signal to end, with what to do next.
    """
    from paperlib.runs.keeper import WorkerDied

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    for stream in (sys.stdout, sys.stderr):  # a terminal may lack signs, such as that between a mean and its spread
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with contextlib.suppress(ValueError):  # not in the main thread, where signals do not arrive
        signal.signal(signal.SIGTERM, end)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    try:
        yield
        if answer:
            print(json.dumps(answer))
    # OSError: a folder that cannot be written, a full disk; ModuleNotFoundError: an extra that is not installed
    except (ValueError, OSError, WorkerDied, ModuleNotFoundError) as error:
        code = refused(error)
        raise typer.Exit(1 if isinstance(error, WorkerDied) else code) from None
    except KeyboardInterrupt:
        errors.print(f"\nstopped; {stopped}")
        raise typer.Exit(130) from None
    finally:
        answer.clear()


def refused(error: Exception) -> int:
    """Print the sentence of an error, whatever has become of the standard output; return the exit status."""
    errors.print(f"[red]{Path(sys.argv[0]).name}:[/red] {escape(one_line(error))}", soft_wrap=True)
    try:
        sys.stdout.flush()
    except OSError:  # it is full or closed: what is left goes nowhere, so that Python does not try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2
