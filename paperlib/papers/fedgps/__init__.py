"""FedGPS: its setting, tables, figures, claims and theory."""

from paperlib.papers.paper import Paper

PAPER = Paper("fedgps", "FedGPS", tables=21, figures=15, position=1)
