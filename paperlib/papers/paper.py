"""The description of a paper, read before any of its tables or figures."""

from dataclasses import dataclass
from pathlib import Path

from paperlib.paths import PAPER_VALUES


@dataclass(frozen=True)
class Paper:
    """A paper with its own package below `paperlib.papers`, which has ``TABLES`` and ``FIGURES``.

    name: of the package. title: the paper's name for its method. tables, figures: their numbers; they are called T1,
    T2, ... and F1, F2, ... sections: sections that print numbers outside of tables and figures. folder: of the CSV file
    with the printed numbers, and of claims.csv and hyperparameters.csv if the paper has its own. position: in lists of
    papers.
    """

    name: str
    title: str
    tables: int
    figures: int
    sections: tuple[str, ...] = ()
    folder: Path = PAPER_VALUES
    position: int = 100

    @property
    def names(self) -> list[str]:
        """All its tables and figures, also those without a specification here."""
        return [f"T{n + 1}" for n in range(self.tables)] + [f"F{n + 1}" for n in range(self.figures)]
