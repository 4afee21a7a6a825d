"""The application, what it prints to a terminal, and its answers to bad input."""

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
app = typer.Typer(no_args_is_help=True)
console, errors = Console(), Console(stderr=True)


def say(text: object) -> None:
    """Print a text as it is; the terminal wraps it."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def print_frame(frame: Any, title: str = "") -> None:
    """Print a table of texts, its index first: short columns whole, numbers to the right, long texts folded."""
    view = Table(box=SIMPLE, title=escape(title) or None, title_justify="left")
    texts = frame.reset_index(names=str(frame.index.name or ""))
    texts = texts.map(lambda text: text if isinstance(text, Text) else Text(str(text)))
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
    except (ValueError, OSError, WorkerDied) as error:  # OSError: a folder that cannot be written, a full disk
        code = refused(error)
        raise typer.Exit(1 if isinstance(error, WorkerDied) else code) from None
    except KeyboardInterrupt:
        errors.print(f"\nstopped; {stopped}")
        raise typer.Exit(130) from None


def refused(error: Exception) -> int:
    """Print the sentence of an error, whatever has become of the standard output; return the exit status."""
    errors.print(f"[red]{Path(sys.argv[0]).name}:[/red] {escape(one_line(error))}", soft_wrap=True)
    try:
        sys.stdout.flush()
    except OSError:  # it is full or closed: what is left goes nowhere, so that Python does not try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2
