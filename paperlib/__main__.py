"""``python -m paperlib``."""

from paperlib.cli import app

app(prog_name="python -m paperlib")
