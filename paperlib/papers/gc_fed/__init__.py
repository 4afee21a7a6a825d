"""GC-Fed (Seo et al. 2025): its setting, tables, figures and claims."""

from paperlib.papers.paper import Paper

PAPER = Paper("gc_fed", "GC-Fed", tables=8, figures=10, position=3)
