"""FedHydra: its setting, tables, figures and claims."""

from paperlib.papers.paper import Paper

PAPER = Paper("fedhydra", "FedHydra", tables=18, figures=13, sections=("text",), position=4)
