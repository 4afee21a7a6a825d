"""FedACD: its setting, tables, figures and claims."""

from paperlib.papers.paper import Paper

PAPER = Paper("fedacd", "FedACD", tables=9, figures=1, position=2)
