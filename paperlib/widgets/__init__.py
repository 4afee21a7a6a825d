"""Explorers for notebooks: each function returns a widget that answers to its controls at once.

Each works with the keyboard alone, says in words what its picture shows, and leaves that picture where there is no
front end.
"""

from paperlib.widgets.partitions import partition_explorer
from paperlib.widgets.playground import method_playground

__all__ = ["method_playground", "partition_explorer"]
