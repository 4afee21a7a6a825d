"""Explorers for notebooks: each function returns a widget that answers to its controls at once.

Each works with the keyboard alone, says in words what its picture shows, and leaves that picture where there is no
front end.
"""

from paperlib.widgets.card import method_card
from paperlib.widgets.live import live_run
from paperlib.widgets.results import result_browser

__all__ = ["live_run", "method_card", "result_browser"]
