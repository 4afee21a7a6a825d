"""The headline claims of the papers (``data/paper/claims.csv``), in print and in our runs.

A claim says that one method is better than another, or than the best of several, in some settings of one table. The
printed numbers are looked up; our verdict uses differences of runs with equal seeds. The columns of the file:

- paper, name, claim: the claim in the paper's terms; section: where the text makes it, or `READING` for what we read
  off the table; table: its numbers.
- where: selects printed rows, such as ``dataset=cifar10;alpha=0.05|0.1``; "|" separates alternatives.
- method, other: the better and the worse side. ``others``: all methods of another family; ``A|B``: the best of these;
  ``each`` and ``same``: every method of the table. Conditions on the printed row follow in brackets, as in
  ``each[integrate=gc_fed]``: the two sides may differ in these fields only.
- metric; least: the smallest claimed difference, in the units of the metric.
- favour: whether the claim speaks for or against the paper's own method, or neither.
- note: where the table does not show in every setting what the text claims.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paperlib.checks import one_of, quote
from paperlib.experiment import Experiment
from paperlib.papers.catalogue import PAPERS
from paperlib.papers.judging import SEEDS, Evidence, PrintedNumber, family, grade
from paperlib.papers.printed import NUMBERS, rows_of
from paperlib.papers.rows import parse
from paperlib.paths import PAPER_VALUES
from paperlib.quantities.agreement import LEVEL, UNKNOWN, Interval, mean_interval, p_value, signed_rank

FILE = PAPER_VALUES / "claims.csv"
READING = "table"
FAVOURS = ("for", "against", "neither")
ROPE = 0.5  # points of accuracy, within which two methods are practically equal
POOLED = 5  # with so many settings, settings are the sample; with fewer, seeds are
# Whether the regime has grade A -> verdict -> how it is called.
WORDS = {
    True: {"held": "shown", "reversed": "contradicted"}, False: {"held": "seen", "reversed": "opposite seen"},
}  # fmt: skip
VERDICTS = ("held", "reversed", "undecided", "not run")


@dataclass(frozen=True)
class Claim:
    """A line of the file."""

    paper: str
    name: str
    claim: str
    section: str
    table: str
    where: str
    method: str
    other: str
    metric: str
    least: float
    favour: str
    note: str


@dataclass(frozen=True)
class Contest:
    """One setting of a claim: the printed number of the method and those of its rivals."""

    method: PrintedNumber
    others: tuple[PrintedNumber, ...]

    @property
    def printed(self) -> float:
        """Return the printed lead of the method over its rival; larger is better."""
        return above(self.method.printed, self.rival.printed)

    @property
    def rival(self) -> PrintedNumber:
        """Return the best of the others in print, which is fixed before any run of ours."""
        return max(self.others, key=lambda other: other.printed)

    @property
    def sides(self) -> tuple[PrintedNumber, PrintedNumber]:
        return self.method, self.rival


@dataclass(frozen=True)
class Verdict:
    """A claim at a scale.

    verdict: one of `VERDICTS`; grade: of the regime, see `paperlib.papers.judging.grade`, "" if nothing is run. ended:
    where some pairs failed and others did not, how many ended and with which mean difference. difference, interval:
    mean difference and its 95 % interval; larger is better for the method. probability: that the method is better by
    more than the ROPE; NaN where seeds decide. p: of no difference; where a probability decides, one less the larger
    of the two sides'. settings: number of settings used, out of ``all_settings``; why: why the rest do not count.
    seeds: fewest seeds of a setting. rivals: rows of the rivals in the settings used. printed: mean printed difference;
    in_print: (printed numbers that show the claim, all). share: operations of our runs over the printed ones. contest:
    the printed experiments of both sides; claims about the same runs share it.
    """

    claim: Claim
    scale: str
    verdict: str
    difference: float
    interval: Interval
    probability: float
    p: float
    settings: int
    all_settings: int
    seeds: int
    rivals: tuple[str, ...]
    why: str
    printed: float
    in_print: tuple[int, int]
    share: float
    grade: str
    ended: str
    contest: frozenset[Experiment]

    @property
    def word(self) -> str:
        """Return the verdict in the words of its regime: only runs at the length of print show or contradict."""
        if self.verdict not in WORDS[self.grade == "A"]:
            return self.verdict
        return WORDS[self.grade == "A"][self.verdict] + (", regime not calibrated" if self.grade == "C" else "")

    @property
    def in_points(self) -> bool:
        """Return True where differences are points of accuracy."""
        return "accuracy" in self.claim.metric and self.claim.metric != "target_accuracy"


def above(a: float, b: float) -> float:
    """a - b; 0 if both failed."""
    return 0.0 if a == b else a - b


@cache
def claims(paper: str) -> tuple[Claim, ...]:
    """The claims of a paper."""
    return tuple(claim for claim in read(PAPERS[paper].folder / FILE.name) if claim.paper == paper)


def read(file: Path = FILE) -> list[Claim]:
    """All claims of such a file. Raises ValueError, naming file and line, for the first invalid one."""
    known = set()

    def parse(row: dict[str, Any]) -> Claim:
        claim = Claim(**{**row, "least": _number(row["least"])})
        _check(claim)
        if (claim.paper, claim.name) in known:
            raise ValueError(f"{claim.paper} has a claim {quote(claim.name)} already")
        known.add((claim.paper, claim.name))
        return claim

    return rows_of(file, [f.name for f in fields(Claim)], parse)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"least is {quote(text)}, but must be a number") from None


def _check(claim: Claim) -> None:
    one_of("paper", claim.paper, PAPERS)
    one_of("favour", claim.favour, FAVOURS)
    one_of("table", claim.table, PAPERS[claim.paper].names)
    for name in ("name", "claim", "section", "metric"):
        if not getattr(claim, name):
            raise ValueError(f"{name} is '', but must be said")
    if not np.isfinite(claim.least) or claim.least < 0:
        raise ValueError(f"least is {claim.least:g}, but must be 0 or more")
    if _side(claim.other)[0] == "same" and _side(claim.method)[0] != "each":
        raise ValueError("other is 'same', but only method 'each' can be compared with itself")
    for text in (claim.where, _side(claim.method)[1], _side(claim.other)[1]):
        _conditions(text)


def _side(text: str) -> tuple[str, str]:
    """The name, and the conditions in brackets behind it."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]+)\])?", text)
    if match is None:
        raise ValueError(
            f"a side is {quote(text)}, but must be a method, with conditions in brackets behind it or none"
        )
    return match[1], match[2] or ""


def _conditions(text: str) -> dict[str, list[str]]:
    """``a=1|2;b=x`` as a dict of lists."""
    parts = [part.partition("=") for part in text.split(";") if part]
    if any(not (name and values) for name, _, values in parts):
        raise ValueError(f"conditions are {quote(text)}, but must read as in dataset=cifar10;alpha=0.05|0.1")
    return {name: values.split("|") for name, _, values in parts}


def _matches(row: Mapping[str, Any], conditions: Mapping[str, Sequence[str]]) -> bool:
    """Return True if a printed row, or its setting, has one of the values of every condition."""
    known = {**row, **parse(row["setting"])}
    return all(
        known.get(name) is not None
        and (float(known[name]) in map(float, values) if name in NUMBERS else str(known[name]) in values)
        for name, values in conditions.items()
    )


def contests(claim: Claim, within: Iterable[PrintedNumber]) -> list[Contest]:
    """The settings of a claim among these entries of its paper, without those where a side has no printed number.

    Raises ValueError if none is left.
    """
    conditions = _conditions(claim.where)
    candidates = [
        entry
        for entry in within
        if entry.table == claim.table
        and entry.row["metric"] == claim.metric
        and not np.isnan(entry.printed)
        and _matches(entry.row, conditions)
    ]
    (name, of_method), (rival, of_other) = _side(claim.method), _side(claim.other)
    left, right = _conditions(of_method), _conditions(of_other)
    chosen = []
    for entry in candidates:
        method = str(entry.row["method"])
        fits = family(claim.paper, method) is not None if name == "each" else method == name
        if not fits or not _matches(entry.row, left):
            continue
        others = tuple(
            other
            for other in candidates
            if other is not entry
            and other.place({*left, *right}) == entry.place({*left, *right})
            and _matches(other.row, right)
            and _is_rival(claim, rival, other, entry)
        )
        if others:
            chosen.append(Contest(entry, others))
    if not chosen:
        raise ValueError(f"{claim.paper}, claim {quote(claim.name)}: {claim.table} has no such numbers")
    return chosen


def _is_rival(claim: Claim, rival: str, other: PrintedNumber, entry: PrintedNumber) -> bool:
    mine, theirs = str(entry.row["method"]), str(other.row["method"])
    if rival == "same":
        return theirs == mine
    if rival == "others":
        return family(claim.paper, theirs) not in (None, family(claim.paper, mine))
    return theirs in rival.split("|")


def verdict(claim: Claim, evidence: Evidence) -> Verdict:
    """Decide a claim by our runs.

    In each setting the method is paired, seed by seed, with its rival: of several others the one that print has in
    front, for the best of ours on the same seeds would win too often. A setting counts if both have three seeds in
    common and it can be judged (`judging`). Settings that use the same runs count once. Up
    to four settings are averaged within each seed, and Student's interval over the seeds decides: held if all of it is
    above the claimed difference, reversed if all of it is below zero. Five or more settings are a sample themselves: a
    Bayesian signed-rank test over their means decides in the same way, at a probability of 95 %; for accuracies its
    region of practical equivalence is half a point.
    """
    matches = contests(claim, evidence.entries)
    settings: dict[tuple[Experiment, ...], list[dict[int, float]]] = {}
    why: dict[str, None] = {}
    counted = []
    for contest in matches:
        gains, reason = _gains(contest, evidence)
        if reason:
            why[reason] = None
        else:
            settings.setdefault(contest.method.cell.experiments, []).append(gains)
            counted += [e for side in contest.sides for e in evidence.done(side)]
    differences = [_mean_by_seed(places) for places in settings.values()]
    return Verdict(
        claim,
        evidence.scale,
        *_decide(claim, differences, ROPE if matches[0].method.is_accuracy else 0),
        settings=len(differences),
        all_settings=len({contest.method.cell.experiments for contest in matches}),
        seeds=min(map(len, differences), default=0),
        rivals=tuple(dict.fromkeys(c.rival.label for c in matches if c.method.cell.experiments in settings)),
        why="; ".join(why),
        printed=float(np.mean([contest.printed for contest in matches])),
        in_print=(sum(_shows(contest.printed, claim.least) for contest in matches), len(matches)),
        share=evidence.share(counted),
        grade=grade(evidence.share(counted), counted),
        ended=_ended(differences),
        contest=frozenset(counted),
    )


def _shows(difference: float, least: float) -> bool:
    return difference > 0 and round(difference, 6) >= least


def _gains(contest: Contest, evidence: Evidence) -> tuple[dict[int, float], str]:
    """Return seed -> lead of the method over its rival in print; or the reason why there is none."""
    mine, theirs = (evidence.by_seed(side) for side in (contest.method, contest.rival))
    pairs: dict[int, list[float]] = {}
    for key in mine.keys() & theirs.keys():
        pairs.setdefault(key[0], []).append(above(mine[key], theirs[key]))
    if len(pairs) < SEEDS:
        empty = next((side for side, values in zip(contest.sides, (mine, theirs), strict=True) if not values), None)
        return {}, evidence.absence(empty) if empty else f"fewer than {SEEDS} seeds in common"
    return {seed: _mean(pairs[seed]) for seed in sorted(pairs)}, evidence.objection(contest.method)


def _ended(settings: Sequence[Mapping[int, float]]) -> str:
    """Say how many pairs ended, and with which mean difference; "" if all did, or none."""
    pairs = [difference for setting in settings for difference in setting.values()]
    finite = [difference for difference in pairs if np.isfinite(difference)]
    if len(finite) in (0, len(pairs)):
        return ""
    return f"{len(finite)} of {len(pairs)} end: {np.mean(finite):+.1f}; {len(pairs) - len(finite)} lost by failure"


def _mean_by_seed(places: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Seed -> mean over the settings, for seeds that all of them have."""
    common = sorted(set.intersection(*(set(place) for place in places)))
    return {seed: _mean([place[seed] for place in places]) for seed in common}


def _mean(values: Iterable[float]) -> float:
    """The mean; -inf if any value is -inf, even beside +inf: a win cannot offset a lost pair."""
    values = list(values)
    return -np.inf if -np.inf in values else float(np.mean(values))


def _decide(
    claim: Claim, settings: Sequence[Mapping[int, float]], rope: float
) -> tuple[str, float, Interval, float, float]:
    """Verdict, mean difference, its interval, the probability where it decides, and the p value."""
    pooled = len(settings) >= POOLED
    units = [_mean(setting.values()) for setting in settings] if pooled else []
    if settings and not pooled:
        units = list(_mean_by_seed(settings).values())
    if not units:
        return "not run", np.nan, UNKNOWN, np.nan, np.nan
    mean, interval = _mean(units), mean_interval(units)
    if not pooled:
        low, high = interval
        told = "held" if low > claim.least else "reversed" if high < 0 else "undecided"
        return told, mean, interval, np.nan, p_value(units)
    below, _, above_zero = signed_rank(units, rope)
    beyond = signed_rank(np.array(units) - claim.least, rope)[2] if claim.least else above_zero
    told = "held" if beyond > LEVEL else "reversed" if below > LEVEL else "undecided"
    return told, mean, interval, beyond, 1 - max(below, above_zero)


def verdicts(evidence: Evidence) -> list[Verdict]:
    """The verdict of every claim about the tables of the evidence, in the order of the file."""
    tables = {entry.table for entry in evidence.entries}
    return [verdict(claim, evidence) for claim in claims(evidence.paper) if claim.table in tables]
