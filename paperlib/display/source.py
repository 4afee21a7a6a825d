"""The source of hooks, for a notebook that shows an equation and the lines that compute it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from paperlib.display.markup import Markup

ROOT = Path(__file__).parents[2]  # of the package: files are named from there


@dataclass(frozen=True)
class Source:
    """Named pieces of code; a notebook shows them highlighted, a terminal as they are.

    pieces: name, file and code of each.
    """

    pieces: tuple[tuple[str, str, str], ...]

    def _repr_html_(self) -> Markup:
        colours = HtmlFormatter(noclasses=True, nobackground=True, prestyles="font-family: monospace")
        piece = Markup(
            '<p style="margin:.6em 0 .2em"><code>{}</code> <span style="color:#595959">{}</span></p>\n'
            '<div style="overflow-x:auto">{}</div>'
        )
        return Markup("\n").join(
            piece.format(name, file, Markup(highlight(code, PythonLexer(stripnl=False), colours)))  # Pygments escapes
            for name, file, code in self.pieces
        )

    def __repr__(self) -> str:
        return "\n\n".join(f"# {name}, {file}\n{code}" for name, file, code in self.pieces).rstrip("\n")


def source(*hooks: Callable[..., Any] | property) -> Source:
    """The code of functions, methods, properties or classes, whole: ``source(LocalGC.gradient, GlobalGC.aggregate)``.

    Raises ValueError for none, and for what has no Python source.
    """
    if not hooks:
        raise ValueError("source needs a function, a method or a class to show")
    return Source(tuple(_piece(hook) for hook in hooks))


def _piece(hook: Any) -> tuple[str, str, str]:
    code: Any = hook.fget if isinstance(hook, property) else inspect.unwrap(hook) if callable(hook) else hook
    try:
        file = Path(inspect.getsourcefile(code) or "")
        text = dedent(inspect.getsource(code))
    except (TypeError, OSError):
        raise ValueError(f"{hook!r} has no Python source, but must be a function, a method or a class") from None
    place = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
    return code.__qualname__, place, text
