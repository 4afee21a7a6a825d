"""All finished runs on one page that needs neither a kernel nor a network.

The page describes its pictures in Vega-Lite (``templates/results.html``); vl-convert, of the extra ``site``, brings the
scripts that draw them.
"""

from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from paperlib.checks import plain
from paperlib.display.markup import Markup
from paperlib.files import is_file, read, write
from paperlib.papers import TITLES, index
from paperlib.papers.claims import Verdict, above, verdicts
from paperlib.papers.judging import Evidence, PrintedNumber, entries, gathered
from paperlib.papers.scales import RULES
from paperlib.paths import copies
from paperlib.paths import figures as figures_folder
from paperlib.quantities.agreement import mean_interval
from paperlib.reports import pages, run_table
from paperlib.reports.run_table import Finished, finished
from paperlib.reports.scorecard import COMPARED
from paperlib.runs.listing import finished_runs
from paperlib.runs.store import Store

POINTS = 40  # of a curve
CURVES = 3_000  # as many runs have one: more than are shipped, and the page stays below fifty megabytes
BASELINE = "FedAvg"
# The columns of the runs that the page shows.
SHOWN = (
    "scale", "method", "data set", "setting", "seed", "last 10", "best", "worst decile", "spread", "rounds", "from",
    "finished", "version",
)  # fmt: skip
Records = list[dict[str, Any]]


def write_page(folder: Path | None = None, store: Path | str | None = None) -> Path:
    """Write ``results.html`` into the folder (default: figures/); returns its path.

    store: of this machine's runs (default: see `paperlib.paths.runs`). Raises ValueError where vl-convert is missing.
    """
    if find_spec("vl_convert") is None:
        raise ValueError("the page of results is drawn by Vega-Lite: pip install 'paperlib[site]' brings its scripts")
    own = finished_runs(Store(store).path)
    listed = list(finished(Store(store).path, own, search=not own.runs.keys() <= index.shipped().keys()))
    judged = evidence_on({place for run in listed for place in run.places}, store)
    data = {
        "runs": by_column(runs(listed)),
        "numbers": [number for evidence in judged for number in numbers(evidence)],
        "pairs": [pair for evidence in judged for pair in pairs(evidence)],
        "claims": [claim_record(verdict) for evidence in judged for verdict in verdicts(evidence)],
        "scales": RULES,
        "curves": CURVES,
    }
    return pages.write_page((folder or figures_folder()) / "results.html", "results", data=data, vega=_vega())


def _vega() -> Markup:
    """Return the scripts that draw the pictures, which take seconds to make, as they are kept in the user's cache."""
    import vl_convert

    kept = copies() / f"vega-{version('vl-convert-python')}.js"
    if is_file(kept):
        return Markup(read(kept).decode())
    scripts = vl_convert.javascript_bundle().replace("</script", "<\\/script")  # type: ignore[call-arg]
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write(kept, scripts.encode())
    return Markup(scripts)


def evidence_on(places: Iterable[index.Use], store: Path | str | None) -> list[Evidence]:
    """Return the evidence of the tables that have runs, by paper and scale; to describe all others takes long."""
    tables: dict[tuple[str, str], list[str]] = {}
    for place in sorted(places):
        if place.scale in COMPARED:
            tables.setdefault((place.paper, place.scale), []).append(place.name)
    return [gathered(paper, entries(paper, names), scale, store=store) for (paper, scale), names in tables.items()]


def runs(listed: Iterable[Finished]) -> Records:
    """Return a record per run, by scale: what `SHOWN` names, papers, places, its curve.

    The first `CURVES` runs have a curve, of at most `POINTS` points; values that are no percentage have none.
    """
    by_digest = {str(run.summary["digest"]): run for run in listed}
    records: Records = []
    for row in run_table.records(by_digest.values()):
        run = by_digest[row["digest"]]
        history = run.history() if len(records) < CURVES else {"round": [], "test_accuracy": []}
        accuracies = enumerate(history["test_accuracy"])
        curve = [number for number, value in accuracies if value is not None and 0 <= value <= 100]
        points = [curve[i] for i in np.unique(np.linspace(0, len(curve) - 1, min(POINTS, len(curve))).astype(int))]
        record = {name: _plain(row[name]) for name in SHOWN} | {"digest": row["digest"], "options": row["options"]}
        record |= {"papers": [TITLES[paper] for paper in run.papers], "places": sorted(set(map(str, run.places)))}
        record |= {"round": [int(history["round"][number]) for number in points]}
        records.append(record | {"accuracy": [round(float(history["test_accuracy"][number]), 2) for number in points]})
    return records


def by_column(records: Records) -> dict[str, Any]:
    """Return records of the same fields as names and rows, in a third of the characters."""
    return {"names": list(records[0]), "rows": [list(record.values()) for record in records]}


def numbers(evidence: Evidence) -> Records:
    """Ours beside printed: a record for every printed accuracy with a run."""
    records = []
    for entry in evidence.entries:
        values = [value for value in evidence.by_seed(entry).values() if np.isfinite(value)]
        if values and entry.is_accuracy and np.isfinite(entry.printed):
            means = {"printed": entry.printed, "ours": round(float(np.mean(values)), 2), "seeds": len(values)}
            records.append(_place(evidence, entry) | means)
    return records


def pairs(evidence: Evidence) -> Records:
    """Return the lead of each method over FedAvg in each place of the tables, over equal seeds: mean, 95 % interval."""
    places: dict[tuple[str, str], list[PrintedNumber]] = {}
    for entry in evidence.entries:
        if entry.ranked and entry.is_accuracy and not entry.is_derived:
            places.setdefault((entry.table, entry.column), []).append(entry)
    records = []
    for competitors in places.values():
        baseline = next((entry for entry in competitors if entry.label == BASELINE), None)
        if baseline is None:
            continue
        base = evidence.by_seed(baseline)
        for entry in competitors:
            ours = evidence.by_seed(entry)
            gains = [above(ours[seed], base[seed]) for seed in ours.keys() & base.keys()]
            if entry is not baseline and len(gains) > 1 and np.isfinite(gains).all():
                differences = _differences(np.mean(gains), mean_interval(gains), entry.printed - baseline.printed)
                records.append(_place(evidence, entry) | differences | {"seeds": len(gains)})
    return records


def claim_record(verdict: Verdict) -> dict[str, Any]:
    """Return a claim, its printed difference, and its verdict by our runs."""
    claim, place = verdict.claim, f"{TITLES[verdict.claim.paper]} {verdict.claim.table}"
    return {
        "paper": TITLES[claim.paper],
        "place": place,
        "row": f"{place}: {claim.name}",
        "claim": claim.claim,
        "favour": claim.favour,
        "settings": f"{verdict.settings} of {verdict.all_settings}",
        **{name: getattr(verdict, name) for name in ("scale", "verdict", "word", "in_points", "why", "seeds")},
        **_differences(verdict.difference, verdict.interval, verdict.printed),
    }


def _differences(mean: Any, interval: tuple[float, float], printed: float) -> dict[str, Any]:
    values = {"difference": mean, "low": interval[0], "high": interval[1], "printed": printed}
    return {name: _plain(value) for name, value in values.items()}


def _place(evidence: Evidence, entry: PrintedNumber) -> dict[str, Any]:
    title = TITLES[evidence.paper]
    record = {"paper": title, "place": f"{title} {entry.table}", "scale": evidence.scale, "column": entry.column}
    record |= {"method": entry.label, "data set": entry.row["dataset"]}
    return record | {"row": f"{record['place']}, {entry.column}: {entry.label}"}


def _plain(value: Any) -> Any:
    """A value without NumPy's types, to two decimals."""
    value = plain(value)
    return round(value, 2) if isinstance(value, float) else value
