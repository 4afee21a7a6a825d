"""The method playground: clients whose losses lie over the plane, and a method at work among them."""

import math
import time
from functools import lru_cache
from typing import Any

import ipywidgets as widgets
import numpy as np
from contourpy import contour_generator
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.display.markup import Markup, folded, listed
from paperlib.display.words import many
from paperlib.methods import REGISTRY
from paperlib.options import options_of
from paperlib.teaching.plane import Trace, begin, choices_of, effective_options, refusals, runnable
from paperlib.teaching.problems import KINDS, Points, Problem, problem
from paperlib.teaching.widgets.explorer import Explorer, View, control

AT_ONCE, LATER = 0.05, 0.6  # seconds of rounds that are played before a move's first drawing, and between the others
GRID = 48  # points of the landscape along each side
MARKS = "os^Dv"  # one per client
GREY = "0.5"
LINE = plots.COLOURS[5]

Options = tuple[tuple[str, Any], ...]
cached_problem = lru_cache(maxsize=4)(problem)
# Argument -> the kind of its slider, its name, and the range and step that it has at least.
SLIDERS: dict[str, tuple[Any, str, float, float, float]] = {
    "clients": (widgets.IntSlider, "clients", 2, 5, 1),
    "distance": (widgets.FloatSlider, "how far apart", 0, 3, 0.1),
    "conditioning": (widgets.FloatSlider, "conditioning", 1, 20, 0.5),
    "sampled": (widgets.IntSlider, "clients per round", 1, 1, 1),
    "local_steps": (widgets.IntSlider, "local steps", 1, 20, 1),
    "lr": (widgets.FloatLogSlider, "learning rate", -2, 0.3, 0.1),
    "rounds": (widgets.IntSlider, "rounds", 1, 40, 1),
}


@lru_cache(maxsize=8)  # a move back costs nothing, and FedAvg is played once for all methods
def cached_trace(at: Problem, name: str, options: Options, **settings: Any) -> Trace:
    return begin(at, name, dict(options), **settings)


def method_playground(
    method: str = "scaffold",
    kind: str = "quadratic",
    *,
    clients: int = 3,
    distance: float = 1.5,
    conditioning: float = 5.0,
    sampled: int | None = None,
    local_steps: int = 5,
    lr: float = 0.2,
    rounds: int = 20,
    seed: int = 0,
) -> Explorer:
    """A method at work in two dimensions: the ways of the clients in a round, that of the server, what the method adds.

    method: one of `paperlib.methods.REGISTRY` that runs with two parameters. kind, clients, distance, conditioning,
    seed: see `paperlib.teaching.problems.problem`. sampled (None: all), local_steps, lr, rounds: see
    `paperlib.teaching.plane.begin`, the code of all runs. These are the values at the start; all but the seed have a
    control.

        from paperlib.teaching import widgets
        widgets.method_playground("fedgps", clients=4, distance=2.0)

    Raises ValueError for a method that does not run here, with its reason, and for impossible values.
    """
    of_problem = {"clients": clients, "distance": distance, "conditioning": conditioning}
    problem(kind, seed=seed, **of_problem)  # type: ignore[arg-type]
    if method not in runnable(kind):
        known = f"unknown method {method!r}; here run {', '.join(runnable(kind))}"
        raise ValueError(refusals(kind).get(method, known))
    of_run = {"sampled": sampled or clients, "local_steps": local_steps, "lr": lr, "rounds": rounds}
    return MethodPlayground(method, kind, seed, of_problem, of_run)


class MethodPlayground(Explorer):
    """See `method_playground`."""

    def __init__(self, method: str, kind: str, seed: int, of_problem: dict[str, float], of_run: dict[str, float]):
        self.seed = seed
        self.of_problem, self.of_run = _sliders(of_problem), _sliders(of_run)
        self.kind = control(widgets.Dropdown, "losses", kind, options=list(KINDS))
        self.method = control(widgets.Dropdown, "method", method, options=list(runnable(kind)))
        self.options = widgets.HBox(layout={"flex_flow": "row wrap"})
        rounds = self.of_run["rounds"]
        self.round = control(widgets.IntSlider, "round shown", min(2, rounds.value), "30em", min=1)
        self.compare = control(widgets.Checkbox, "compare with FedAvg", True, indent=False)
        # Before the explorer looks, so that what it draws fits together.
        self.kind.observe(self._other_kind, "value")
        self.method.observe(self._other_method, "value")
        clients, sampled = self.of_problem["clients"], self.of_run["sampled"]
        widgets.dlink((clients, "value"), (sampled, "max"))
        widgets.dlink((rounds, "value"), (self.round, "max"))
        self._other_method()
        at_work = [self.method, self.options], [*self.of_run.values()], [self.round, self.compare]
        super().__init__([[self.kind, *self.of_problem.values()], *at_work], self.show)

    def show(self) -> View:
        at = cached_problem(self.kind.value, seed=self.seed, **_values(self.of_problem))
        methods = [(self.method.value, self.chosen_options())] + [("fedavg", ())] * self.compare.value
        traces = [cached_trace(at, name, options, **_values(self.of_run)) for name, options in methods]
        # The first view is complete, for whoever has no front end; the others grow, and the kernel stays responsive.
        budget = LATER if all(trace.rounds for trace in traces) else AT_ONCE
        until = time.perf_counter() + budget if hasattr(self, "view") else math.inf
        for trace in traces:
            if not trace.finished and (not trace.rounds or time.perf_counter() < until):
                trace.go_on(until - time.perf_counter())
        round = min(self.round.value, len(traces[0].rounds))
        with plots.style():
            figure = picture(traces, round)
        unfinished = not all(trace.finished for trace in traces)
        return View(words(traces, round), figure, more=missing_methods(self.kind.value), unfinished=unfinished)

    def chosen_options(self) -> Options:
        """Return the options of the method that are not its defaults."""
        name, defaults = self.method.value, options_of(REGISTRY[self.method.value])
        moved = {c.description: c.value for c in self.options.children if c.value != defaults[c.description]}
        return tuple((runnable(self.kind.value)[name] | moved).items())

    def _other_kind(self, _: object) -> None:
        before, options = self.method.value, list(runnable(self.kind.value))
        self.method.options = options
        self.method.value = before if before in options else "fedavg"
        self._other_method()

    def _other_method(self, _: object = None) -> None:
        name = self.method.value
        children: list[Any] = []
        for option, default in effective_options(self.kind.value, name).items():
            if choices := choices_of(name, option):
                children.append(control(widgets.Dropdown, option, default, options=list(choices)))
            else:
                kind = widgets.IntText if isinstance(default, int) else widgets.FloatText
                children.append(control(kind, option, default, "13em"))
        self.options.children = children
        if hasattr(self, "view"):
            self.watch(*children)


def _sliders(values: dict[str, float]) -> dict[str, Any]:
    """A slider for each value, which may lie above its usual range."""
    sliders = {}
    for name, value in values.items():
        kind, label, low, high, step = SLIDERS[name]
        most = max(high, math.log10(value) if kind is widgets.FloatLogSlider else value)
        sliders[name] = control(kind, label, value, min=low, max=most, step=step)
    return sliders


def _values(controls: dict[str, Any]) -> dict[str, Any]:
    return {name: control.value for name, control in controls.items()}


def words(traces: list[Trace], round: int) -> str:
    """Describe a round: how far the clients drift, how near the server is, and what the method adds."""
    trace = traces[0]
    ways, e = trace.rounds[round - 1], trace.method.context.experiment
    drifts = [way.drift for way in ways]
    farthest = max(ways, key=lambda way: way.drift).client
    moved = np.linalg.norm(np.mean([way.points[-1] - way.received for way in ways], 0))
    parts = [
        f"{e.method} in round {round} of {e.rounds}.",
        f"{many(len(ways), 'client')} of {e.clients} took part, with {many(e.local_epochs, 'step')} each; on average "
        f"they end {np.mean(drifts):.2f} from the model they received (client {farthest} {max(drifts):.2f}), and the "
        f"mean of their models {moved:.2f}; the difference cancels in the mean."
        if len(ways) > 1
        else f"Client {farthest} alone took part and ends {drifts[0]:.2f} from the model it received.",
    ]
    others = [t for t in traces[1:] if len(t.distances) > round]
    beside = "".join(f" (FedAvg {t.distances[round]:.3f})" for t in others)
    parts.append(f"The server is then {trace.distances[round]:.3f} from the global optimum{beside}.")
    if (last := len(trace.rounds)) > round:
        beside = "".join(f" (FedAvg {t.distances[last]:.3f})" for t in traces[1:] if len(t.distances) > last)
        parts.append(f"After round {last} it is {trace.distances[last]:.3f}{beside}.")
    if not np.isfinite(trace.server[-1]).all():
        parts.append(f"It diverges: from round {last} on the model is not finite. A smaller learning rate may help.")
    for what in sorted({arrow.what for way in ways for arrow in way.arrows}):
        lengths = [float(np.linalg.norm(arrow.by)) for way in ways for arrow in way.arrows if arrow.what == what]
        parts.append(f"Arrows, {what}: {np.mean(lengths):.2f} long on average.")
    if trace.line is not None:
        parts.append(_projected(trace))
    for option, value in e.method_options.items():
        if e.method in refusals(trace.problem.kind) and runnable(trace.problem.kind)[e.method].get(option) == value:
            parts.append(f"It runs here with {option} = {value} only: {refusals(trace.problem.kind)[e.method]}.")
    if e.method != "fedavg" and others and _same(trace, others[0]):
        parts.append("Here it takes the very steps of FedAvg.")
    return " ".join(parts)


def _projected(trace: Trace) -> str:
    """Describe what the projection of gradient centralization means in the plane."""
    assert trace.line is not None
    across = np.array([-trace.line[1], trace.line[0]])
    local = all(abs(np.diff(way.points, axis=0) @ across).max() < 1e-9 for ways in trace.rounds for way in ways)
    off = abs((np.stack(trace.server) - trace.server[0]) @ across).max()
    text = (
        "Two parameters are one matrix with two inputs; without the mean of both a gradient has one direction left, "
        f"({trace.line[0]:.2f}, {trace.line[1]:.2f}), which the dash-dotted line shows (of a layer with d inputs d - 1 "
        f"of d are left). {'Every local step is along it' if local else 'Clients move freely, the server along it'}"
    )
    if off > 1e-9:
        return f"{text}."
    miss = abs((trace.problem.optimum - trace.server[0]) @ across)
    return f"{text}; the global optimum is {miss:.2f} beside the line, and no server model can come nearer."


def _same(trace: Trace, other: Trace) -> bool:
    rounds = min(len(trace.server), len(other.server))
    return np.allclose(trace.evaluated[:rounds], other.evaluated[:rounds], rtol=1e-9, atol=1e-12, equal_nan=True)


def missing_methods(kind: str) -> Markup:
    """The methods that are not among the choices, with their reasons, as HTML."""
    reasons = {name: reason for name, reason in refusals(kind).items() if name not in runnable(kind)}
    rows = listed([Markup("<b>{}</b>: {}").format(name, reason) for name, reason in reasons.items()])
    return folded(f"{many(len(reasons), 'method')} cannot run here, and why", rows)


# -- the picture


def picture(traces: list[Trace], round: int) -> Figure:
    """The plane in a round, and the distance to the optimum over the rounds. traces: the method's, FedAvg's."""
    figure = Figure(figsize=(11.6, 4.7))
    plane = figure.add_axes((0.04, 0.07, 0.495, 0.87))
    curve = figure.add_axes((0.745, 0.11, 0.245, 0.79))
    _plane(plane, traces, round)
    _curve(curve, traces, round)
    handles, _ = plane.get_legend_handles_labels()
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(0.54, 0.5), fontsize=8, handlelength=2.2)
    return figure


def _plane(ax: Axes, traces: list[Trace], round: int) -> None:
    trace = traces[0]
    p, ways = trace.problem, {way.client: way for way in trace.rounds[round - 1]}
    x, y, values = _landscape(p, _window(traces))
    look: dict[str, Any] = {"color": "black", "linewidth": 1.6, "markersize": 3.5, "zorder": 6}
    ax.plot(*np.stack(trace.server[: round + 1]).T, "-o", label="server", **look)
    for other in traces[1:]:
        look = {"color": GREY, "linewidth": 1.2, "markersize": 4, "zorder": 3}
        ax.plot(*np.stack(other.server[: round + 1]).T, "--.", label="server of FedAvg", **look)
    for k in range(p.clients):
        look = {"color": plots.COLOURS[k], "marker": MARKS[k], "zorder": 7}
        points = ways[k].points if k in ways else np.full((1, 2), np.nan)
        label = f"client {k}" if k in ways else f"client {k}, absent"
        look["linestyle"] = plots.LINES[k % 4] if k in ways else ""
        ax.plot(*points.T, linewidth=1.5, markersize=3.5, markevery=slice(1, None), label=label, **look)
    for k, (loss, optimum) in enumerate(zip(values, p.optima, strict=True)):
        look = {"color": plots.COLOURS[k], "markersize": 8, "markerfacecolor": "white", "zorder": 4}
        _contours(ax, x, y, loss, _levels(loss, 4, 0.12), color=plots.COLOURS[k], linewidth=0.6, alpha=0.7)
        ax.plot(*optimum, MARKS[k], **look)
    ax.plot([], [], "o", color=GREY, markerfacecolor="white", markersize=7, label="optimum of a client")
    ax.plot(*p.optimum, "*", color="black", markersize=13, zorder=5, label="global optimum")
    average = values.mean(0)
    _contours(ax, x, y, average, _levels(average, 9, 1.0), color="0.75", linewidth=0.9, label="global loss")
    arrows = [(plots.COLOURS[way.client], arrow) for way in ways.values() for arrow in way.arrows]
    for colour, arrow in arrows:
        if np.linalg.norm(arrow.by) > 1e-9:
            head: Any = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "alpha": 0.9}
            ax.annotate("", tuple(arrow.at + arrow.by), tuple(arrow.at), zorder=8, arrowprops=head)
    for what in sorted({arrow.what for _, arrow in arrows}):
        look = {"marker": r"$\rightarrow$", "color": "0.2", "markersize": 11}
        ax.plot([], [], linestyle="", label=what.replace(", ", ",\n", 1), **look)
    if trace.line is not None:
        through = tuple(trace.server[0]), tuple(trace.server[0] + trace.line)
        look = {"linestyle": "-.", "color": LINE, "linewidth": 1, "zorder": 2}
        ax.axline(*through, label="left by the projection", **look)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), aspect="equal", anchor="W")
    ax.grid(False)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(plots.MaxNLocator(5))
    plots.title(ax, f"{trace.method.context.experiment.method}, round {round}: θ in the plane")


def _contours(ax: Axes, x: Points, y: Points, z: Points, levels: Points, **look: Any) -> None:
    """Contour lines as one artist; matplotlib's own make four times the work of it."""
    lines: list[Any] = [line for level in levels for line in contour_generator(x, y, z).lines(level)]
    ax.add_collection(LineCollection(lines, zorder=1, **look), autolim=False)


def _curve(ax: Axes, traces: list[Trace], round: int) -> None:
    """Distances over the rounds, between powers of ten."""
    looks = [("-", "black", 2.5), ("--", GREY, 2)]
    finite = np.concatenate([trace.distances[np.isfinite(trace.distances)] for trace in traces]).clip(1e-9, 1e9)
    for trace, (line, colour, order) in zip(traces, looks, strict=False):
        ax.semilogy(trace.distances.clip(1e-9), line, color=colour, linewidth=1.6, zorder=order)
    ax.axvline(round, color="0.3", linewidth=0.8, linestyle=":")
    ax.set_ylim(10 ** np.floor(np.log10(finite.min())), 10 ** np.ceil(np.log10(finite.max()) + 1e-9))
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_major_locator(plots.MaxNLocator(5, integer=True))
    ax.set(xlabel="round", xlim=(0, traces[0].method.context.experiment.rounds))
    plots.title(ax, "distance to the global optimum")


def _window(traces: list[Trace]) -> tuple[float, float, float, float]:
    """Left, right, bottom, top: all optima, and the ways as far as they stay near. The same for all rounds."""
    p = traces[0].problem
    fixed = np.vstack([p.optima, p.optimum, [p.start]])
    size = np.ptp(fixed, 0).max()
    ways = [np.stack(t.server) for t in traces] + [way.points for ways in traces[0].rounds for way in ways]
    points = np.vstack([fixed, *(np.clip(way, fixed.min(0) - size / 2, fixed.max(0) + size / 2) for way in ways)])
    points = points[np.isfinite(points).all(1)]
    low, high = points.min(0) - 0.08 * size, points.max(0) + 0.08 * size
    wide, tall = high - low
    missing = max(0, 1.4 * tall - wide) / 2  # to the shape of the panel
    return low[0] - missing, high[0] + missing, low[1], high[1]


def _landscape(p: Problem, window: tuple[float, float, float, float]) -> tuple[Points, Points, Points]:
    """Places along both sides, and the clients' losses there, [clients, GRID, GRID]."""
    left, right, bottom, top = window
    x, y = np.linspace(left, right, GRID), np.linspace(bottom, top, GRID)
    points = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    return x, y, p.landscape(points).reshape(-1, GRID, GRID)


def _levels(loss: Points, number: int, share: float) -> Points:
    """Levels that lie closer where the loss is flat, up to a share of its range."""
    low, high = loss.min(), loss.max()
    return low + share * (high - low) * (np.arange(1, number + 1) / number) ** 2
