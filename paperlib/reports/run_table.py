"""All finished runs, here and shipped, and what is known of each: fields, summary, history, tables it is in."""

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from paperlib.checks import one_line
from paperlib.experiment import DEFAULTS
from paperlib.papers import TITLES, index, shipped_runs
from paperlib.partition_files import short
from paperlib.runs.listing import Listing, finished_runs
from paperlib.runs.records import evaluated_rows, read_history

ORDER = {scale: place for place, scale in enumerate(("paper", "small", "mini", "smoke", ""))}
# Column of the list -> its width in characters.
WIDTHS = {
    "scale": 5, "in": 20, "method": 13, "data set": 11, "setting": 41, "seed": 4, "last 10": 8, "best": 7,
    "final": 7, "from": 12,
}  # fmt: skip


class Finished(NamedTuple):
    """A finished run. fields: of its experiment, all of them. places: tables and figures that are made from it.

    file: of a shipped run; folder: of a run of this machine.
    """

    fields: dict[str, Any]
    summary: dict[str, Any]
    places: list[index.Use]
    file: str = ""
    folder: Path | None = None

    @property
    def papers(self) -> list[str]:
        """The papers whose tables it is in, or where that is not known, the one of its file."""
        named = self.file.rpartition("-")[0]
        return list(dict.fromkeys(place.paper for place in self.places)) or [named] * (named in TITLES)

    @property
    def scale(self) -> str:
        return next((place.scale for place in self.places), self.file.rpartition("-")[2])

    def history(self) -> dict[str, Any]:
        """Return the numbers of the evaluated rounds by name; no rounds where the folder has just gone."""
        if self.folder is None:
            rounds = shipped_runs.rounds(self.summary["digest"], self.file)
            return {str(name): rounds[name].to_numpy() for name in rounds.columns}
        rows = evaluated_rows(read_history(self.folder))
        names = dict.fromkeys(chain(("round", "test_accuracy"), *rows))
        return {name: [row.get(name) for row in rows] for name in names}


def finished(store: Path, own: Listing | None = None, search: bool = False) -> Iterator[Finished]:
    """Yield the finished runs of the store, then those that are shipped and were not run here.

    own: those of the store, where they have been read already. search: for the tables of runs, as in `index.places`.
    """
    known = {**index.places(search), **index.shipped()}
    here = (own or finished_runs(store)).runs
    for digest, run in here.items():
        yield Finished(DEFAULTS | run.described, run.summary, known.get(digest, []), folder=store / digest)
    for digest, (file, entry) in shipped_runs.summaries(shipped_runs.REFERENCE).items():
        if digest not in here:
            yield Finished(DEFAULTS | entry["experiment"], entry["summary"], known.get(digest, []), file)


def listing(runs: Iterable[Finished]) -> pd.DataFrame:
    """Return `records` of finished runs as a table, by digest."""
    return pd.DataFrame(records(runs)).set_index("digest", drop=False).rename_axis(None)


def records(runs: Iterable[Finished]) -> list[dict[str, Any]]:
    """Return one record per finished run: first those of this machine, then by scale and setting.

    Its names: those of the list (`WIDTHS`); paper, tables and places, where the run stands; rounds, failed, digest,
    version, finished, device, seconds, folder (of a run of this machine) and file (of a shipped one), text (all that
    can be searched).
    """
    rows = [_row(run) for run in runs]
    scale = {row["scale"]: ORDER.get(row["scale"], ORDER["small"]) for row in rows}  # a budget stands beside small
    setting = itemgetter("in", "setting", "seed", "method")
    return sorted(rows, key=lambda row: (row["file"] != "", scale[row["scale"]], *setting(row)))


def _row(run: Finished) -> dict[str, Any]:
    e, summary, papers = run.fields, run.summary, run.papers
    by_paper = {paper: [place.name for place in run.places if place.paper == paper] for paper in papers}
    options = one_line(" ".join(f"{name}={value}" for name, value in e["method_options"].items()))
    alpha = "" if e["alpha"] is None else f"({e['alpha']:g})"
    row = {
        "scale": run.scale,
        "in": ", ".join(" ".join([TITLES[paper], *names]) for paper, names in by_paper.items())
        or run.file.rpartition("-")[0],
        "method": e["method"],
        "data set": e["dataset"],
        "setting": f"{short(e['partition'])}{alpha}, {e['sampled']} of {e['clients']}, {e['model']}",
        "seed": e["seed"],
        "last 10": summary["last10_accuracy"],
        "best": summary["best_accuracy"],
        "final": summary["final_accuracy"],
        "worst decile": summary.get("last10_worst_decile"),
        "spread": summary.get("last10_client_spread"),
        "from": "shipped" if run.folder is None else "this machine",
        "paper": papers,
        "options": options,
        "places": run.places,
        "folder": run.folder,
        "file": run.file,
    }
    row |= {key: e[key] for key in ("rounds", "local_epochs", "local_steps", "lr")}
    row |= {key: summary.get(key) for key in ("failed", "digest", "version", "finished", "device", "seconds")}
    row |= {"source": summary.get("dataset_source")}
    words = [*(str(row[column]) for column in WIDTHS), *papers, options, summary["digest"]]
    row["text"] = " ".join([*words, f"seed={e['seed']}", f"alpha={e['alpha']}"]).lower()
    return row
