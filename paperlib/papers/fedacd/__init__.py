"""FedACD: its setting, tables, figures, claims and theory."""

from paperlib.papers.paper import Paper

PAPER = Paper("fedacd", "FedACD", tables=9, figures=1, position=2)
