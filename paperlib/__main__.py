"""``python -m paperlib``."""

from paperlib.cli import command

command("python -m paperlib")
