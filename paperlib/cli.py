"""The command line, ``paperlib --help``."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paperlib.checks import one_line

CORES = os.cpu_count() or 1
WIDE = 150  # characters per line, from which on less important columns are shown
app = typer.Typer(help="Five federated-learning papers, reproduced.", no_args_is_help=True, add_completion=False)
console = Console()

Paper = Annotated[str, typer.Argument(help="fedgps, fedacd, gc_fed, fedhydra or fedimpro")]
Name = Annotated[str, typer.Argument(help="a table or figure, such as T5 or F6")]
Scale = Annotated[str, typer.Option(help="smoke, small or paper")]
Seeds = Annotated[int, typer.Option(help="number of seeds, 0 to seeds - 1")]
Jobs = Annotated[int, typer.Option(help="processes that work on different runs side by side")]
Together = Annotated[int, typer.Option(help="runs of different seeds and partitions that a GPU plays as one")]
Where = Annotated[str, typer.Option(help="processes of this machine, or tasks on ray")]
Address = Annotated[str | None, typer.Option(help="with ray: the cluster, auto for the one this machine belongs to")]
Gpus = Annotated[float | None, typer.Option(help="with ray: GPUs of one run, such as 0.25 for four on each")]

Cells = Annotated[list[str] | None, typer.Option("--only", help="field=value of the printed runs, such as alpha=0.1")]


@app.command("list")
def list_(
    paper: Annotated[str, typer.Argument(help="one of the papers, which is quicker than all")] = "", seeds: Seeds = 3
) -> None:
    """Papers, their tables and figures, and how many runs are done at which scale."""
    from paperlib import papers
    from paperlib.checks import whole
    from paperlib.papers.gathering import finished
    from paperlib.papers.report import needed
    from paperlib.papers.scales import RULES, at_scale
    from paperlib.papers.values import names

    with sentences():
        whole("seeds", seeds, 1)
        for chosen in [paper] if paper else papers.TITLES:
            there = [*papers.tables(chosen), *papers.figures(chosen)]
            view = Table(box=SIMPLE, title=f"{papers.TITLES[chosen]} ({chosen})", title_justify="left", expand=True)
            view.add_column("name", no_wrap=True)
            view.add_column("title", no_wrap=True, overflow="ellipsis", ratio=1)
            for column in ("kind", "section", *["notebook"] * (console.width >= WIDE)):
                view.add_column(column, no_wrap=True)
            for scale in RULES:
                view.add_column(scale, justify="right", no_wrap=True)
            for name in there:
                spec = papers.spec(chosen, name)
                wanted = dict.fromkeys(needed(spec, seeds))
                done = []
                for scale in RULES:
                    runs = list(dict.fromkeys(at_scale(e, scale) for e in wanted))
                    done.append(f"{len(finished(runs))}/{len(runs)}" if runs else "-")
                where = [spec.section, *[spec.notebook] * (console.width >= WIDE)]
                view.add_row(name, spec.title, spec.kind, *where, *done)
            console.print(view)
            if missing := [name for name in names(chosen) if name not in there]:
                console.print(f"Not there: {', '.join(missing)}.", soft_wrap=True)
        console.print(f"Runs that are done at each scale, with {seeds} seeds.")


@app.command()
def show(paper: Paper, name: Name, scale: Scale = "small", seeds: Seeds = 3) -> None:
    """The printed table and what we have of it; nothing is run."""
    from paperlib import papers
    from paperlib.tables import DescriptionTable

    with sentences():
        if name in papers.figures(paper):
            shown = papers.figure(paper, name, scale=scale, seeds=seeds, compute=False).save()
            console.print(f"{shown!r}\nwritten to {shown.path.with_suffix('.pdf')}", soft_wrap=True, markup=False)
            return
        table = papers.table(paper, name, scale=scale, seeds=seeds, compute=False)
        if isinstance(table, DescriptionTable):
            console.print(repr(table), soft_wrap=True, markup=False)
            return
        text = table.text(("[bold]", "[/bold]"))
        fit = max(1, (console.width - 20) // 45)  # columns of the paper that fit the terminal
        for first in range(0, len(table.labels), fit):
            labels = table.labels[first : first + fit]
            view = Table(title=table.title if first == 0 else None, title_justify="left")
            view.add_column(str(text.index.name), no_wrap=True)
            for label in labels:
                view.add_column(f"{label}\nours", justify="right", no_wrap=True)
                view.add_column("\nprinted", justify="right", style="dim", no_wrap=True)
            for row in text.index:
                view.add_row(str(row), *(text.loc[row, (label, q)] for label in labels for q in ("ours", "printed")))
            console.print(view)
        console.print(table.caption, soft_wrap=True, markup=False)


@app.command()
def run(
    paper: Paper,
    name: Name,
    scale: Scale = "smoke",
    seeds: Seeds = 3,
    jobs: Jobs = 1,
    together: Together = 1,
    executor: Where = "processes",
    address: Address = None,
    gpus: Gpus = None,
    only: Cells = None,
) -> None:
    """Run what is missing of a table or figure here or on Ray. Ctrl-C is safe: the same command goes on from there.

    With --only, a part of it: --only dataset=cifar10 --only alpha=0.05 --only alpha=0.1
    """
    from paperlib import executors, papers

    with sentences():
        where = executors.executor(executor, address=address, gpus=gpus)
        make = papers.figure if name in papers.figures(paper) else papers.table
        made = make(
            paper, name, scale=scale, seeds=seeds, recompute=True, jobs=jobs, together=together, executor=where,
            only=chosen_fields(only),
        ).save()  # fmt: skip
        console.print(repr(made), soft_wrap=True, markup=False)
        console.print(f"written to {made.path}.*")


@app.command()
def reproduce(
    paper: Annotated[list[str] | None, typer.Argument(help="papers; without one, all five")] = None,
    scale: Scale = "smoke",
    seeds: Seeds = 1,
    jobs: Jobs = CORES,
    recompute: Annotated[bool, typer.Option(help="run here what this machine has not run, even if shipped")] = False,
    executor: Where = "processes",
    address: Address = None,
    gpus: Gpus = None,
) -> None:
    """Run the notebooks of papers at a scale, then build the scorecard and the gallery figures/index.html."""
    from paperlib import executors
    from paperlib.reproduce import reproduce as reproduce_papers

    with sentences():
        started = time.perf_counter()
        where = executors.executor(executor, address=address, gpus=gpus)
        page = reproduce_papers(
            *(paper or []), scale=scale, seeds=seeds, jobs=jobs, recompute=recompute, executor=where
        )
        console.print(f"{page} ({time.perf_counter() - started:.0f} s)", soft_wrap=True)


@app.command()
def plan(
    paper: Annotated[str, typer.Argument(help="one of the papers; without it, all")] = "",
    name: Annotated[str, typer.Argument(help="one of its tables or figures; without it, all")] = "",
    scale: Scale = "paper",
    seeds: Seeds = 3,
    jobs: Jobs = CORES,
    only: Cells = None,
    page: Annotated[bool, typer.Option(help="write the sizes of all grids into docs/scale.md")] = False,
) -> None:
    """What the tables and figures cost before they are run: runs, samples, operations, and hours on this machine."""
    from paperlib import plan as planning

    with sentences():
        if page:
            console.print(f"written to {planning.write_page()}", soft_wrap=True)
            return
        table = planning.sizes(planning.grids(paper, scale, seeds, name, chosen_fields(only)), jobs)
        view = Table(box=SIMPLE, title=f"Scale {scale}, {seeds} seeds", title_justify="left")
        for column in ("", *table.columns):
            view.add_column(str(column), justify="right" if column else "left", no_wrap=True)
        for row in planning.shown(table).itertuples():
            view.add_row(*row)
        console.print(view)
        console.print(planning.NOTE, soft_wrap=True)


@app.command()
def scorecard(
    readme: Annotated[
        bool, typer.Option(help="rewrite the README's summary, from shipped runs, and nothing else")
    ] = False,
) -> None:
    """How far the tables are reproduced, and where our order of the methods is not the printed one."""
    from paperlib import gallery, papers
    from paperlib import scorecard as made

    with sentences():
        if readme:
            console.print(f"written to {made.write_summary()}", soft_wrap=True)
            return
        card = made.scorecard()
        for paper, title in papers.TITLES.items():
            text = made.shown(card, paper).drop(columns="title")
            text = text[[name for name in text if not text[name].isin(["-", ""]).all()]]
            view = Table(box=SIMPLE, title=title, title_justify="left")
            view.add_column("table", no_wrap=True)
            for column in text:
                view.add_column(str(column).replace(", ", "\n"), justify="left" if column == "verdict" else "right")
            for name, row in text.iterrows():
                view.add_row(str(name), *row)
            console.print(view)
        console.print(made.EXPLAINED, soft_wrap=True)
        console.print(f"written to {made.write_page(card)}", soft_wrap=True)
        gallery.build()  # which has a link to it


@app.command()
def ship(paper: Paper, names: list[str], scale: Scale = "small", seeds: Seeds = 3) -> None:
    """Add this machine's finished runs of some tables or figures to data/reference."""
    from paperlib import papers
    from paperlib.papers import places, reference
    from paperlib.papers.gathering import finished

    with sentences():
        wanted = [e for name in names for e in papers.experiments(paper, name, scale=scale, seeds=seeds)]
        runs = finished(wanted, shipped=False).values()
        if not runs:
            raise ValueError(f"none of the {len(wanted)} runs of {', '.join(names)} at scale {scale} is finished here")
        total = reference.ship(runs, f"{paper}-{scale}")
        places.update(f"{paper}-{scale}")
        console.print(f"{len(runs)} runs shipped; data/reference/{paper}-{scale} now holds {total}")


@app.command()
def compare(
    seeds: Seeds = 3,
    jobs: Jobs = CORES,
    ship: Annotated[bool, typer.Option(help="add the finished runs to data/reference")] = False,
) -> None:
    """All multi-round methods in one setting: run what is missing, and write docs/comparison.md."""
    from paperlib import comparison
    from paperlib.checks import whole
    from paperlib.papers import reference
    from paperlib.papers.gathering import finished
    from paperlib.runner import run_many

    with sentences():
        wanted = comparison.experiments(seeds)
        whole("jobs", jobs, 1)
        found = finished(wanted)
        missing = [e for e in wanted if e not in found]
        found |= zip(missing, run_many(missing, jobs, progress=True), strict=True)
        if ship:
            reference.ship(finished(wanted, shipped=False).values(), "comparison-small")
        console.print(f"written to {comparison.write_page(found, seeds)}")


@app.command()
def profile(
    words: Annotated[
        list[str],
        typer.Argument(help="fields of the experiment as field=value; the first may be a run: digest, folder or file"),
    ],
    rounds: Annotated[int, typer.Option(help="rounds that are timed, after one to warm up")] = 3,
    engine: Annotated[str, typer.Option(help="auto, sequential, vectorised or captured")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    trace: Annotated[Path | None, typer.Option(help="file for a further round, to look at in Perfetto")] = None,
) -> None:
    """Where the time of an experiment goes: seconds per part of its first rounds. No run is changed or stored."""
    from paperlib.parts import PARTS
    from paperlib.profile import described
    from paperlib.profile import profile as play

    with sentences("nothing was kept"):
        seen = play(described(words), rounds=rounds, engine=engine, device=device, trace=trace)
        first, last = seen.seconds.index[[0, -1]]
        engine = seen.engine.name + (f" ({seen.engine.reason})" if seen.engine.reason else "")
        title = f"{seen.experiment}\nrounds {first} to {last}, {seen.evaluated} evaluated; {seen.device}, {engine}"
        console.print(title, soft_wrap=True, markup=False)
        view = Table()
        view.add_column("part", no_wrap=True)
        view.add_column("what it is")
        for column in seen.table.columns:
            view.add_column(column, justify="right", no_wrap=True)
        rows = [(name, what, seen.table.loc[name]) for name, what in PARTS.items()]
        for name, what, row in [*rows, ("whole", "", seen.table.sum())]:
            if name != "graph" or row.seconds:
                view.add_row(name, what, f"{row.seconds:.3f}", f"{row.percent:.1f}", f"{row['per round']:.3f}")
        console.print(view)
        console.print(str(seen), soft_wrap=True, markup=False)


@app.command()
def methods(name: Annotated[str, typer.Argument(help="one method in full, such as gc_fed")] = "") -> None:
    """The methods side by side: source, memory, traffic, tables. With a name: its options, hooks, combinations."""
    from paperlib import overview

    with sentences():
        if name:
            console.print(overview.card(name).text(), soft_wrap=True, markup=False, highlight=False)
            return
        table = overview.shown(overview.methods())
        words = ["paper", "what it changes", "tables"]
        names = [str(column) for column in table]
        parts = [names]
        if console.width < 170:  # numbers and words below each other
            parts = [[name for name in names if name not in words], words]
        for columns in parts:
            view = Table()
            view.add_column("method", no_wrap=True)
            for column in columns:
                numbers = column in overview.NUMBERS
                view.add_column(column, justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
            for method, row in zip(table.index, table[columns].to_numpy(str), strict=True):
                view.add_row(str(method), *(escape(text) for text in row))
            console.print(view)
        console.print(overview.NOTE, soft_wrap=True)
        view = Table(title="one-shot methods", title_justify="left")
        view.add_column("method", no_wrap=True)
        for column in words:
            view.add_column(column, overflow="fold")
        one_shot = overview.one_shot_methods()
        for method, texts in zip(one_shot.index, one_shot.to_numpy(str), strict=True):
            view.add_row(str(method), *map(escape, texts))
        console.print(view)


def chosen_fields(words: list[str] | None) -> dict[str, list[Any]] | None:
    """What --only was given, as `papers.table` takes it: a field named twice may have either value."""
    from paperlib.experiment import field_and_value

    fields: dict[str, list[Any]] = {}
    for name, value in map(field_and_value, words or []):
        fields.setdefault(name, []).append(value)
    return fields or None


@contextlib.contextmanager
def sentences(stopped: str = "the same command continues from here") -> Iterator[None]:
    """Bad input is answered with its sentence and not with a traceback, like a full disk or a process that was killed.

    Ctrl-C, or a signal to end, with what to do next.
    """
    from paperlib.executors import WorkerDied

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError):  # not in the main thread, where signals do not arrive
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    except (ValueError, OSError, WorkerDied) as error:  # OSError: a folder that cannot be written, a full disk
        console.print(f"[red]{Path(sys.argv[0]).name}:[/red] {escape(one_line(error))}", soft_wrap=True)
        raise typer.Exit(1 if isinstance(error, WorkerDied) else 2) from None
    except KeyboardInterrupt:
        console.print(f"\nstopped; {stopped}")
        raise typer.Exit(130) from None
