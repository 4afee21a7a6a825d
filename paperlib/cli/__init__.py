"""The command line, ``paperlib --help``."""

import atexit
import gc
import sys
from typing import Annotated

try:
    import typer

    from paperlib.cli import papers, tools  # whose commands are those of the application
    from paperlib.cli.terminal import app, console, refused
except ModuleNotFoundError as missing:
    raise SystemExit(f"paperlib: the command needs {missing.name}; pip install 'paperlib[reports]' brings it") from None
from paperlib.version import version


def command(name: str | None = None) -> None:
    """The command in a shell, called ``name`` in its help.

    The garbage collector is off while a command imports a million long-lived objects, among which it would look for a
    second of three; `sentences` switches it on where the work begins.
    """
    gc.disable()
    atexit.register(gc.freeze)
    try:
        app(prog_name=name)
    except OSError as error:  # of help or version, which are printed outside of `sentences`
        sys.exit(refused(error))


def _print_version(asked: bool) -> None:
    if asked:
        console.print(version(), highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and end", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """A companion to five federated-learning papers: their methods, tables and figures."""


__all__ = ["app", "command", "papers", "tools"]
