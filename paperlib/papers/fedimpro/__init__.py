"""FedImpro: its setting, tables, figures and claims."""

from paperlib.papers.paper import Paper

PAPER = Paper("fedimpro", "FedImpro", tables=11, figures=13, sections=("B", "E", "F.3", "S5.2"), position=5)
