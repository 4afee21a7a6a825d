"""Explorers for notebooks: each function returns a widget that answers to its controls at once.

Each works with the keyboard alone, says in words what its picture shows, and leaves that picture where there is no
front end.
"""

from paperlib.teaching.widgets.card import method_card
from paperlib.teaching.widgets.live import live_run
from paperlib.teaching.widgets.partitions import partition_explorer
from paperlib.teaching.widgets.playground import method_playground
from paperlib.teaching.widgets.results import result_browser

__all__ = ["live_run", "method_card", "method_playground", "partition_explorer", "result_browser"]
