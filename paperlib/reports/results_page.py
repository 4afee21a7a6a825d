"""All finished runs on one page that needs neither a kernel nor a network.

Altair describes the pictures, vl-convert brings the scripts that draw them; both are the extra ``site``. What is seen
is chosen in the page, see ``templates/results.html``.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from paperlib.display.markup import Markup
from paperlib.papers import TITLES
from paperlib.papers.claims import Verdict, above, verdicts
from paperlib.papers.judging import Evidence, PrintedNumber, entries, gathered
from paperlib.papers.scales import RULES
from paperlib.paths import figures as figures_folder
from paperlib.quantities.agreement import mean_interval
from paperlib.reports import pages
from paperlib.reports.run_table import finished, listing
from paperlib.reports.scorecard import COMPARED
from paperlib.runs.store import Store

POINTS, FEWEST = 40, 8  # of a curve, and where there are many runs
LARGEST = 200_000  # points of all curves together, as long as each has its fewest
BASELINE = "FedAvg"
VERDICTS = {"held": "#0173b2", "reversed": "#b34700", "undecided": "#6b6b6b"}
# The columns of the runs that the page shows.
SHOWN = ("scale", "method", "data set", "setting", "seed", "last 10", "best", "rounds", "from", "finished", "version")
Records = list[dict[str, Any]]


def write_page(folder: Path | None = None, store: Path | str | None = None) -> Path:
    """Write ``results.html`` into the folder (default: figures/); returns its path.

    store: of this machine's runs (default: see `paperlib.paths.runs`). Raises ValueError where Altair is missing.
    """
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        raise ValueError("the page of results is drawn by Altair, which is not installed: pip install 'paperlib[site]'")
    import vl_convert

    printed = {paper: entries(paper) for paper in TITLES}
    judged = [gathered(paper, printed[paper], scale) for paper in TITLES for scale in COMPARED]
    data = {
        "runs": by_column(runs(Store(store))),
        "numbers": [number for evidence in judged for number in numbers(evidence)],
        "pairs": [pair for evidence in judged for pair in pairs(evidence)],
        "claims": [claim_record(verdict) for evidence in judged for verdict in verdicts(evidence)],
        "scales": RULES,
    }
    vega = vl_convert.javascript_bundle().replace("</script", "<\\/script")  # type: ignore[call-arg]
    path = (folder or figures_folder()) / "results.html"
    return pages.write_page(path, "results", data=data, charts=charts(), vega=Markup(vega))


def runs(store: Store) -> Records:
    """Return a record per finished run, here and shipped, by scale: what `SHOWN` names, papers, places, its curve.

    A record has a bounded size: with many runs, a curve has fewer points. Values that are no percentage have none.
    """
    by_digest = {str(run.summary["digest"]): run for run in finished(store.path)}
    most = min(POINTS, max(FEWEST, LARGEST // len(by_digest)))
    records = []
    for row in listing(by_digest.values()).to_dict("records"):
        run = by_digest[row["digest"]]
        history = run.history()
        accuracies = enumerate(history["test_accuracy"])
        curve = [number for number, value in accuracies if value is not None and 0 <= value <= 100]
        points = [curve[i] for i in np.unique(np.linspace(0, len(curve) - 1, min(most, len(curve))).astype(int))]
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
            records.append(
                _place(evidence, entry)
                | {"printed": entry.printed, "ours": round(float(np.mean(values)), 2), "seeds": len(values)}
            )
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
        "scale": verdict.scale,
        "row": f"{place}: {claim.name}",
        "claim": claim.claim,
        "verdict": verdict.verdict,
        "in_points": "accuracy" in claim.metric and claim.metric != "target_accuracy",
        "why": verdict.why,
        "settings": f"{verdict.settings} of {verdict.all_settings}",
        "seeds": verdict.seeds,
        "favour": claim.favour,
        **_differences(verdict.difference, verdict.interval, verdict.printed),
    }


def _differences(mean: Any, interval: tuple[float, float], printed: float) -> dict[str, Any]:
    values = {"difference": mean, "low": interval[0], "high": interval[1], "printed": printed}
    return {name: _plain(value) for name, value in values.items()}


def charts() -> dict[str, Any]:
    """The pictures as Vega-Lite; the page gives them their data, which have the names of the pictures."""
    import altair as alt

    def chart(name: str, description: str) -> Any:
        return alt.Chart(alt.NamedData(name=name), description=description, width="container")

    where = [f"{name}:N" for name in ("place", "column", "method", "scale", "seeds")]
    accuracy = alt.Scale(zero=False)
    curves = (
        chart("curves", "Test accuracy by round of the chosen runs")
        .mark_line(strokeWidth=1.5, opacity=0.8)
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("accuracy:Q", title="test accuracy (%)", scale=accuracy),
            color=alt.Color("method:N", legend=alt.Legend(symbolLimit=40)),
            detail="digest:N",
            tooltip=["method:N", "data set:N", "setting:N", "seed:Q", "round:Q", "accuracy:Q"],
        )
        .properties(height=300)
    )
    ends = alt.Data(values=[{"at": 0}, {"at": 100}])
    equal = alt.Chart(ends).mark_line(color="#6b6b6b", strokeDash=[4, 4]).encode(x="at:Q", y="at:Q")
    points = (
        chart("numbers", "Our accuracy against the printed one, a point for each printed number")
        .mark_point(filled=True, size=45, opacity=0.7)
        .encode(
            x=alt.X("printed:Q", title="printed accuracy (%)", scale=accuracy),
            y=alt.Y("ours:Q", title="our accuracy (%)", scale=accuracy),
            color=alt.Color("method:N", legend=alt.Legend(symbolLimit=40)),
            tooltip=[*where, "printed:Q", "ours:Q"],
        )
    )
    return {
        "curves": curves.to_dict(),
        "numbers": alt.layer(equal, points).properties(height=380, width="container").to_dict(),
        "pairs": _forest(chart("pairs", f"Differences to {BASELINE} in points, with 95 % intervals"), where),
        "claims": _forest(
            chart("claims", "Differences that the claims are about, with 95 % intervals"),
            ["claim:N", "verdict:N", "why:N", "settings:N", "seeds:N"],
            alt.Color("verdict:N", scale=alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))),
        ),
    }


def _forest(base: Any, facts: Sequence[str], color: Any = None) -> dict[str, Any]:
    """Means with their intervals, the printed difference beside them, one below the other."""
    import altair as alt

    tooltip = [*facts, "difference:Q", "low:Q", "high:Q", "printed:Q"]
    y = alt.Y("row:N", title=None, sort=None, axis=alt.Axis(labelLimit=380))
    base = base.encode(y=y, tooltip=tooltip, **({} if color is None else {"color": color}))
    mark = {} if color is not None else {"color": VERDICTS["held"]}
    zero = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(color="#6b6b6b").encode(x="at:Q")
    interval = base.mark_rule(strokeWidth=2, clip=True, **mark).encode(
        x=alt.X("low:Q", title="difference in points (square: printed)"), x2="high:Q"
    )
    mean = base.mark_point(filled=True, size=60, clip=True, **mark).encode(x="difference:Q")
    printed = base.mark_point(shape="square", size=60, clip=True, color="#6b6b6b").encode(x="printed:Q")
    layers = alt.layer(zero, interval, printed, mean)
    chart: dict[str, Any] = layers.properties(height=alt.Step(18), width="container").to_dict()
    return chart


def _place(evidence: Evidence, entry: PrintedNumber) -> dict[str, Any]:
    title = TITLES[evidence.paper]
    record = {"paper": title, "place": f"{title} {entry.table}", "scale": evidence.scale, "column": entry.column}
    record |= {"method": entry.label, "data set": entry.row["dataset"]}
    return record | {"row": f"{record['place']}, {entry.column}: {entry.label}"}


def _plain(value: Any) -> Any:
    """A value as JSON has it, to two decimals; None for what is unknown or has no bound."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return None
    if isinstance(value, float | np.floating):
        return round(float(value), 2)
    return value.item() if isinstance(value, np.generic) else value
