"""The numbers that FedHydra's text states about its figures, beside ours."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paperlib.papers.cells import Cell, Joint, Reading, server_accuracy
from paperlib.papers.fedhydra.setting import AVERAGED, METHODS, MODELS, experiment, place
from paperlib.papers.rows import Row, all_rows, cell_of, parse, runs_of
from paperlib.runs.store import Run

OTHERS = tuple(method for method in METHODS if method != "FedHydra")
CLOCK = place("cifar10", 0.5, "FedHydra")  # the setting of the times in Figure 13


def _cell(row: Row, what: str, rows: Sequence[Row], seeds: int, column: str = "value", **read: Any) -> Cell:
    """The cell of a stated number; read: a Reading ``read`` with its ``baseline``, or ``joint`` for several rows."""
    runs = [e for other in rows for e in runs_of(experiment, other, seeds)]
    return cell_of(row, what, column, runs, chance_fails=False, **read)


def _best(run: Run, _: Run | None) -> float:
    return run.summary["best_accuracy"]


def _last(run: Run, _: Run | None = None) -> float | None:
    return server_accuracy(run, run.experiment.rounds)


def _largest(runs: Sequence[Run], scale: str) -> float:
    return max(_best(run, None) for run in runs)


# -- accuracy by epoch on the server


def overtakes(figure: str, dataset: str, alphas: Sequence[float]) -> Callable[[int], list[Cell]]:
    """Statements about curves: when FedHydra takes the lead for good, its peak, and the best of the others.

    alphas: those of the statement; the curves are averaged over them.
    """

    def by_seeds(seeds: int) -> list[Cell]:
        cells = []
        for row in all_rows("fedhydra", figure):
            alpha = row["alpha"]
            own, where = place(dataset, alpha or alphas[0], "FedHydra"), f"α={alpha}"
            if row["metric"] == "crossover_epoch":
                runs = [place(dataset, a, method) for method in ("FedHydra", *OTHERS) for a in alphas]
                where = ", ".join(f"{a:g}" for a in alphas)
                what = f"epoch after which FedHydra is ahead, mean over α = {where}"
                cells.append(_cell(row, what, runs, seeds, joint=ahead(len(alphas))))
            elif row["metric"] == "peak_epoch":
                cells.append(_cell(row, f"epoch of FedHydra's peak, {where}", [own], seeds, read=peak))
            elif row["method"] == "FedHydra":
                cells.append(_cell(row, f"accuracy (%) at FedHydra's peak, {where}", [own], seeds, read=_best))
            else:
                runs = [place(dataset, alpha, method) for method in OTHERS]
                cells.append(_cell(row, f"accuracy (%) of the best other method, {where}", runs, seeds, joint=_largest))
        return cells

    return by_seeds


def peak(run: Run, _: Run | None) -> float:
    """The epoch with the best accuracy, the first of several."""
    return float(run.history["epoch"].iloc[int(run.history.test_accuracy.to_numpy().argmax())])


def ahead(settings: int) -> Joint:
    """The last epoch in which the first method is not above all others; None if that is the final epoch.

    The runs are grouped by method, with ``settings`` runs each, which are averaged; a run without epochs is constant.
    """

    def joint(runs: Sequence[Run], scale: str) -> float | None:
        epochs = max(len(run.history) for run in runs)
        curves = [run.history.test_accuracy.to_numpy(float) for run in runs]
        if any(len(curve) not in (1, epochs) for curve in curves):  # a failed run ends early
            return None
        level = np.stack([np.broadcast_to(curve, epochs) for curve in curves])
        own, *others = level.reshape(-1, settings, epochs).mean(1)
        behind = np.flatnonzero(own <= np.max(others, axis=0))
        last = int(behind[-1]) + 1 if len(behind) else 0
        return None if last == epochs else float(last)

    return joint


# -- the other figures


def weights(seeds: int) -> list[Cell]:
    """Figure 5: entries of U_r; the paper counts clients from one and classes from zero."""
    cells = []
    for row in all_rows("fedhydra", "F5"):
        client, label = (int(parse(row["setting"])[name]) for name in ("client", "class"))

        def entry(run: Run, _: Run | None, at: tuple[int, int] = (label, client - 1)) -> float:
            return run.summary["weights"][at[0]][at[1]]

        own = place("mnist", None, "FedHydra")
        cells.append(_cell(row, f"client {client}, class {label}", [own], seeds, "weight in U_r", read=entry))
    return cells


def ensembles(seeds: int) -> list[Cell]:
    """Figure 7, students. The text states AE's higher accuracy without an α; here it is the mildest."""

    def lead(runs: Sequence[Run], scale: str) -> float | None:
        last = [accuracy for run in runs if (accuracy := server_accuracy(run, 1)) is not None]
        if len(last) < len(runs):
            return None
        return max(sa - ae for sa, ae in zip(last[: len(MODELS)], last[len(MODELS) :], strict=True))

    cells = []
    for row in all_rows("fedhydra", "F7"):
        alpha = row["alpha"] or 0.5
        if row["metric"] == "accuracy_gap_max":
            both = [place(dataset, alpha, "FedHydra", **other) for other in ({}, AVERAGED) for dataset in MODELS]
            cells.append(_cell(row, f"largest lead of SA over AE, α={alpha:g} (points)", both, seeds, joint=lead))
        else:
            what = f"AE, MNIST, α={alpha:g}{'' if row['alpha'] else ' (not stated)'}"
            averaged = place(row["dataset"], alpha, "FedHydra", **AVERAGED)
            cells.append(_cell(row, f"{what}, accuracy (%)", [averaged], seeds, read=_last))
    return cells


def local_epochs(seeds: int) -> list[Cell]:
    """Figure 8: accuracies by local epochs that the text states."""
    return [
        _cell(row, f"{row['method']}, E={row['local_epochs']:g}, accuracy (%)", [row], seeds, read=_last)
        for row in all_rows("fedhydra", "F8")
    ]


def times(seeds: int) -> list[Cell]:
    """Figure 13: seconds on the server (the paper prints its fifth run), and the text's 7 % (Section 4.2.7)."""

    def seconds(run: Run, _: Run | None) -> float:
        return run.summary["seconds"]

    def overhead(run: Run, other: Run | None) -> float:
        assert other is not None
        return 100 * (seconds(run, None) / seconds(other, None) - 1)

    readings: dict[str, Reading] = {"running_time_s": seconds, "running_time_overhead_percent": overhead}
    cells = []
    for row in (*all_rows("fedhydra", "F13"), *all_rows("fedhydra", "text")):
        if row["metric"] in readings:
            relative = row["metric"] != "running_time_s"
            what = f"{row['method']} over DENSE (%)" if relative else f"{row['method']} (seconds)"
            beside = tuple(runs_of(experiment, {**CLOCK, "method": "DENSE"}, seeds)) if relative else ()
            own = {**CLOCK, "method": row["method"]}
            cells.append(_cell(row, what, [own], seeds, read=readings[row["metric"]], baseline=beside))
    return cells
