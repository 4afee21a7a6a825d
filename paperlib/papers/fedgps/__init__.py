"""FedGPS: its setting, tables, figures and claims."""

from paperlib.papers.paper import Paper

PAPER = Paper("fedgps", "FedGPS", tables=21, figures=15, position=1)
