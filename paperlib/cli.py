"""The command line, ``paperlib --help``."""

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from paperlib.checks import one_line
from paperlib.paths import needs_checkout
from paperlib.version import version

CORES = os.cpu_count() or 1
WIDE = 150  # characters per line, from which on less important columns are shown
app = typer.Typer(no_args_is_help=True)
console = Console()

Paper = Annotated[str, typer.Argument(help="fedgps, fedacd, gc_fed, fedhydra or fedimpro")]
Name = Annotated[str, typer.Argument(help="a table or figure, such as T5 or F6")]
Scale = Annotated[str, typer.Option(help="smoke, mini, small, paper, or operations per run, such as 1e14")]
Budget = Annotated[
    str | None, typer.Option(help="instead of a scale: operations per run, such as 1e14, or time for all, such as 2h")
]
Seeds = Annotated[int, typer.Option(help="number of seeds, 0 to seeds - 1")]
Jobs = Annotated[int, typer.Option(help="processes that work on different runs side by side")]
Where = Annotated[str, typer.Option(help="processes of this machine, or tasks on ray")]
Address = Annotated[str | None, typer.Option(help="with ray: the cluster, auto for the one this machine belongs to")]
Gpus = Annotated[float | None, typer.Option(help="with ray: GPUs of one run, such as 0.25 for four on each")]

Cells = Annotated[list[str] | None, typer.Option("--only", help="field=value of the printed runs, such as alpha=0.1")]


def command(name: str | None = None) -> None:
    """The command in a shell, called ``name`` in its help.

    What a command imports is a million objects that live as long as it does. To look for garbage among them while they
    are imported, and once more at the end, costs a second of three: `sentences` begins with it where the work begins.
    """
    gc.disable()
    atexit.register(gc.freeze)
    app(prog_name=name)


def _print_version(asked: bool) -> None:
    if asked:
        console.print(version(), highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and end", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Five federated-learning papers, reproduced."""


@app.command("list")
def list_(
    paper: Annotated[str, typer.Argument(help="one of the papers, which is quicker than all")] = "", seeds: Seeds = 3
) -> None:
    """Papers, their tables and figures, and how many runs are done at which scale."""
    from paperlib import papers
    from paperlib.checks import whole
    from paperlib.papers.catalogue import PAPERS
    from paperlib.papers.collection import finished_digests
    from paperlib.papers.scales import RULES, at_scale
    from paperlib.papers.specs import needed

    with sentences():
        whole("seeds", seeds, 1)
        own, shipped = finished_digests()
        finished = own | shipped
        digest = cache(lambda e, scale: at_scale(e, scale).digest)  # tables share their runs
        for chosen in [paper] if paper else papers.TITLES:
            names = [*papers.tables(chosen), *papers.figures(chosen)]
            view = Table(box=SIMPLE, title=f"{papers.TITLES[chosen]} ({chosen})", title_justify="left", expand=True)
            view.add_column("name", no_wrap=True)
            view.add_column("title", no_wrap=True, overflow="ellipsis", ratio=1)
            for column in ("kind", "section", *["notebook"] * (console.width >= WIDE)):
                view.add_column(column, no_wrap=True)
            for scale in RULES:
                view.add_column(scale, justify="right", no_wrap=True)
            for name in names:
                spec = papers.spec(chosen, name)
                experiments = dict.fromkeys(needed(spec, seeds))
                done = []
                for scale in RULES:
                    runs = {digest(e, scale) for e in experiments}
                    here = f" ({len(runs & own)})" if runs & own else ""
                    done.append(f"{len(runs & finished)}/{len(runs)}{here}" if runs else "-")
                where = [spec.section, *[spec.notebook] * (console.width >= WIDE)]
                view.add_row(name, spec.title, spec.kind, *where, *done)
            console.print(view)
            if missing := [name for name in PAPERS[chosen].names if name not in names]:
                console.print(f"Not there: {', '.join(missing)}.", soft_wrap=True)
        console.print(f"Runs done at each scale, with {seeds} seeds: in brackets here, the others are shipped.")


@app.command()
def show(paper: Paper, name: Name, scale: Scale = "small", budget: Budget = None, seeds: Seeds = 3) -> None:
    """The printed table and what we have of it; nothing is run."""
    from paperlib import papers
    from paperlib.display.tables import DescriptionTable
    from paperlib.papers.specs import REST

    with sentences():
        scale = chosen_scale(scale, budget, {paper: [name]}, seeds)
        if name in papers.figures(paper):
            figure = papers.figure(paper, name, scale=scale, seeds=seeds, compute=False).save()
            console.print(f"{figure!r}\nwritten to {figure.path.with_suffix('.pdf')}", soft_wrap=True, markup=False)
            return
        table = papers.table(paper, name, scale=scale, seeds=seeds, compute=False)
        if isinstance(table, DescriptionTable):
            console.print(repr(table), soft_wrap=True, markup=False)
            return
        text = table.text(("[bold]", "[/bold]"), escape=escape)
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
        rest = f"paperlib run {paper} {name} --scale {scale} --seeds {seeds} --rest runs the rest"
        console.print(table.caption.replace(REST, rest), soft_wrap=True, markup=False)


@app.command()
def run(
    paper: Paper,
    name: Name,
    scale: Scale = "smoke",
    budget: Budget = None,
    seeds: Seeds = 3,
    jobs: Jobs = CORES,
    executor: Where = "processes",
    address: Address = None,
    gpus: Gpus = None,
    only: Cells = None,
    rest: Annotated[bool, typer.Option("--rest", help="without the runs that were shipped")] = False,
) -> None:
    """Run a table or figure here or on Ray. Ctrl-C is safe: the same command goes on from there.

    What this machine has not run yet is run, even if it was shipped; with --rest, only what `plan` counts as left.
    With --only, a part of the table: --only dataset=cifar10 --only alpha=0.05 --only alpha=0.1
    """
    from paperlib import papers
    from paperlib.runs import executors

    with sentences():
        where = executors.executor(executor, address=address, gpus=gpus)
        scale = chosen_scale(scale, budget, {paper: [name]}, seeds, jobs, only)
        make = papers.figure if name in papers.figures(paper) else papers.table
        result = make(
            paper, name, scale=scale, seeds=seeds, recompute="rest" if rest else True, jobs=jobs, executor=where,
            only=chosen_fields(only),
        ).save()  # fmt: skip
        console.print(repr(result), soft_wrap=True, markup=False)
        console.print(f"written to {result.path}.*")


@app.command()
def reproduce(
    paper: Annotated[list[str] | None, typer.Argument(help="papers; without one, all five")] = None,
    scale: Scale = "smoke",
    budget: Budget = None,
    seeds: Seeds = 1,
    jobs: Jobs = CORES,
    recompute: Annotated[bool, typer.Option(help="run here what this machine has not run, even if shipped")] = False,
    executor: Where = "processes",
    address: Address = None,
    gpus: Gpus = None,
) -> None:
    """Run the notebooks of papers at a scale, then build the scorecard and the gallery figures/index.html."""
    from paperlib.runs import executors

    with sentences():
        needs_checkout("reproduce")
        from paperlib.reports.reproduce import reproduce as reproduce_papers

        started = time.perf_counter()
        where = executors.executor(executor, address=address, gpus=gpus)
        scale = chosen_scale(scale, budget, dict.fromkeys(paper or [], []), seeds, jobs)
        page = reproduce_papers(
            *(paper or []), scale=scale, seeds=seeds, jobs=jobs, recompute=recompute, executor=where
        )
        console.print(f"{page} ({time.perf_counter() - started:.0f} s)", soft_wrap=True)


@app.command()
def plan(
    paper: Annotated[str, typer.Argument(help="one of the papers; without it, all")] = "",
    name: Annotated[str, typer.Argument(help="one of its tables or figures; without it, all")] = "",
    scale: Scale = "paper",
    budget: Budget = None,
    seeds: Seeds = 3,
    jobs: Jobs = CORES,
    only: Cells = None,
    page: Annotated[bool, typer.Option(help="write the sizes of all grids into docs/scale.md")] = False,
) -> None:
    """What the tables and figures cost before they are run: runs, samples, operations, and hours on this machine."""
    from paperlib.papers.scales import RULES
    from paperlib.reports import plan as planning

    with sentences():
        if page:
            needs_checkout("--page")
            console.print(f"written to {planning.write_page()}", soft_wrap=True)
            return
        began, busy = time.perf_counter(), time.process_time()
        names = {paper: [name] if name else []} if paper else {}
        scale = chosen_scale(scale, budget, names, seeds, jobs, only)
        grids = planning.grids(paper, scale, seeds, name, chosen_fields(only))
        table = planning.sizes(grids, jobs)
        named = f"Scale {scale}" if scale in RULES else f"Budget of {scale} operations"
        view = Table(box=SIMPLE, title=f"{named}, {seeds} seeds", title_justify="left")
        for column in ("", *table.columns):
            view.add_column(str(column), justify="right" if column else "left", no_wrap=True)
        for row in planning.as_text(table).itertuples():
            view.add_row(*row)
        console.print(view)
        had = min(1.0, (time.process_time() - busy) / (time.perf_counter() - began))
        console.print(f"{planning.NOTE} {planning.LOAD.format(had)}", soft_wrap=True)
        console.print()
        for line in planning.settings(paper, scale, name, chosen_fields(only)) if paper else ():
            console.print(Padding(Text(line), (0, 0, 0, 2)))


@app.command()
def scorecard(
    readme: Annotated[
        bool,
        typer.Option(help="rewrite the README's summary and docs/findings.md, from shipped runs, and nothing else"),
    ] = False,
) -> None:
    """How far the tables are reproduced, and which of the papers' claims hold in our runs."""
    from paperlib import papers
    from paperlib.reports import gallery
    from paperlib.reports import scorecard_page as pages
    from paperlib.reports.scorecard import scorecard as judge

    with sentences():
        if readme:
            needs_checkout("--readme")
            console.print(f"written to {' and '.join(map(str, pages.write_summaries()))}", soft_wrap=True)
            return
        card = judge()
        for paper, title in papers.TITLES.items():
            _print_card(title, pages.with_content(pages.scores(card, paper).drop(columns="title")))
            claims = pages.claims(card, paper).set_index("claim")
            _print_card(f"Claims of {title}", claims[["printed", "verdict", "ours", "from", "scale"]])
        console.print(pages.EXPLANATION, soft_wrap=True)
        console.print(f"written to {pages.write_page(card)}", soft_wrap=True)
        gallery.build()  # which has a link to it


@app.command("results-page")
def results_page() -> None:
    """Every finished run on one page: curves, ours against print, paired differences, claims. It needs no network."""
    from paperlib.reports import gallery
    from paperlib.reports.results_page import write_page

    with sentences():
        console.print(f"written to {write_page()}", soft_wrap=True)
        gallery.build()  # which has a link to it


@app.command()
def export(
    folder: Annotated[
        Path,
        typer.Argument(help="for runs.parquet and columns.csv; replaces an export only"),
    ],
) -> None:
    """Write all finished runs, here and shipped, as one table (parquet) with a dictionary of its columns (CSV)."""
    from paperlib.reports.export import export as write_all

    with sentences():
        console.print(f"written to {write_all(folder)}", soft_wrap=True)


def _print_card(title: str, text: Any) -> None:
    """A table of the scorecard, its index first."""
    view = Table(box=SIMPLE, title=title, title_justify="left")
    view.add_column(str(text.index.name))
    for column in text:
        view.add_column(str(column).replace(", ", "\n"))
    for name, row in text.iterrows():
        view.add_row(str(name), *row)
    console.print(view)


@app.command()
def ship(
    paper: Paper, names: list[str], scale: Scale = "small", budget: Budget = None, seeds: Seeds = 3, only: Cells = None
) -> None:
    """Add this machine's finished runs of some tables or figures to data/reference; with --only, those of a part."""
    from paperlib import papers
    from paperlib.papers import index, shipped_runs
    from paperlib.papers.collection import finished

    with sentences():
        needs_checkout("ship")
        scale = chosen_scale(scale, budget, {paper: names}, seeds, only=only)
        fields = chosen_fields(only)
        grids = [papers.experiments(paper, name, scale=scale, seeds=seeds, only=fields) for name in names]
        experiments = sum(grids, [])
        runs = finished(experiments, shipped=False).values()
        if not runs:
            raise ValueError(
                f"none of the {len(experiments)} runs of {', '.join(names)} at scale {scale} is finished here"
            )
        total = shipped_runs.ship(runs, f"{paper}-{scale}")
        index.update(f"{paper}-{scale}")
        console.print(f"{len(runs)} runs shipped; data/reference/{paper}-{scale} now holds {total}")


@app.command()
def profile(
    words: Annotated[
        list[str],
        typer.Argument(help="fields of the experiment as field=value; the first may be a run: digest, folder or file"),
    ],
    rounds: Annotated[int, typer.Option(help="rounds that are timed, after one to warm up")] = 3,
    engine: Annotated[str, typer.Option(help="auto, sequential or captured")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or a GPU by number such as cuda:1")] = "auto",
    trace: Annotated[
        str | None,
        typer.Option(help="file for a further round, to look at in Perfetto; replaces a trace only"),
    ] = None,
) -> None:
    """Where the time of an experiment goes: seconds per part of its first rounds. No run is changed or stored."""
    from paperlib.reports.outputs import check_file, is_trace
    from paperlib.runs.profile import profile as play
    from paperlib.timing import PARTS

    with sentences("nothing was kept"):
        file = None if trace is None else check_file("trace", trace, is_trace, "a trace of torch's profiler")
        measured = play(experiment_of(words), rounds=rounds, engine=engine, device=device, trace=file)
        first, last = measured.seconds.index[[0, -1]]
        engine = measured.engine.name + (f" ({measured.engine.reason})" if measured.engine.reason else "")
        timed = f"rounds {first} to {last}, {measured.evaluated} evaluated"
        title = f"{measured.experiment}\n{timed}; {measured.device}, {engine}"
        console.print(title, soft_wrap=True, markup=False)
        view = Table()
        view.add_column("part", no_wrap=True)
        view.add_column("what it is")
        for column in measured.table.columns:
            view.add_column(column, justify="right", no_wrap=True)
        rows = [(name, what, measured.table.loc[name]) for name, what in PARTS.items()]
        for name, what, row in [*rows, ("whole", "", measured.table.sum())]:
            if name != "graph" or row.seconds:
                view.add_row(name, what, f"{row.seconds:.3f}", f"{row.percent:.1f}", f"{row['per round']:.3f}")
        console.print(view)
        console.print(str(measured), soft_wrap=True, markup=False)


@app.command()
def partition(
    file: Annotated[Path, typer.Argument(help="a name that ends in .json; replaces an earlier partition only")],
    words: Annotated[list[str], typer.Argument(help="fields of the experiment as field=value; the first may be a run")],
) -> None:
    """Write which training images each client of an experiment has, for other programs and as partition=file.json."""
    from paperlib import partition_files
    from paperlib.reports.outputs import check_file, is_partition
    from paperlib.runs.prepare import dataset_of, parts_of

    with sentences("nothing was written"):
        check_file("file", str(file), is_partition, "a partition")
        if file.suffix != ".json":
            raise ValueError(f"file is {str(file)!r}, but must end in .json")
        e = experiment_of(words)
        parts = parts_of(e, dataset_of(e))
        fields = ("dataset", "train_size", "partition", "alpha", "clients", "min_samples", "partition_seed")
        partition_files.write(file, parts, parts.labels.numpy(), {name: getattr(e, name) for name in fields})
        console.print(f"{len(parts)} clients with {sum(map(len, parts)):,} images, written to {file}", soft_wrap=True)


@app.command()
def pack(
    name: Annotated[str, typer.Argument(help="of the data set; it becomes <name>.npz in the data directory")],
    source: Annotated[
        str, typer.Argument(help="folder with a subfolder per class, or a class of torchvision.datasets")
    ],
    root: Annotated[Path, typer.Option(help="where the files of torchvision's data set lie")] = Path("."),
    size: Annotated[int | None, typer.Option(help="height and width in pixels, if images must be resized")] = None,
    test_share: Annotated[float, typer.Option(help="of a folder without train and test: share of the test set")] = 0.2,
) -> None:
    """Make a data set of images of one's own, to be used by its name like any other."""
    from paperlib import packing
    from paperlib.data.datasets import DATASETS, data_directory, load

    with sentences("nothing was written"):
        if name in DATASETS or not name.isidentifier():
            raise ValueError(f"name is {name!r}, but must be letters and digits, and not that of a known data set")
        is_folder = Path(source).is_dir()
        train, test, classes = packing.folder(source, test_share) if is_folder else packing.of_torchvision(source, root)
        path = packing.pack(data_directory() / f"{name}.npz", train, test, classes, size)
        packed = load(name)
        counts = f"{len(packed.train_labels):,} training and {len(packed.test_labels):,} test images"
        console.print(
            f"{counts} of {packed.num_classes} classes, shape {packed.shape}, written to {path}", soft_wrap=True
        )


@app.command()
def diagnose(run: Annotated[str, typer.Argument(help="a finished run: digest, folder or experiment.json")]) -> None:
    """Why a run diverges: what its history shows, which known failure fits, and the change that mends it."""
    from paperlib.papers.collection import finished
    from paperlib.reports import diagnosis

    with sentences():
        e = experiment_of([run])
        folder = Path(run) if Path(run).is_dir() else Path(run).parent
        runs = finished([e], folder.parent if folder.name == e.digest else None)
        if not runs:
            raise ValueError(f"{e} is not finished: there is no history to look at")
        console.print(str(diagnosis.diagnose(runs[e])), soft_wrap=True, markup=False)


@app.command()
def methods(name: Annotated[str, typer.Argument(help="one method in full, such as gc_fed")] = "") -> None:
    """The methods side by side: source, memory, traffic, tables. With a name: its options, hooks, combinations."""
    from paperlib.reports import method_table

    with sentences():
        if name:
            console.print(method_table.card(name).text(), soft_wrap=True, markup=False, highlight=False)
            return
        table = method_table.as_text(method_table.methods())
        words = ["paper", "what it changes", "tables"]
        parts = [table] if console.width >= 170 else [table.drop(columns=words), table[words]]  # below each other
        for part in parts:
            _print_methods(part)
        console.print(method_table.NOTE, soft_wrap=True)
        _print_methods(method_table.one_shot_methods().set_axis(words, axis="columns"), "one-shot methods")


def _print_methods(table: Any, title: str | None = None) -> None:
    """A row per method, its texts folded and its numbers whole."""
    from paperlib.reports.method_table import NUMBERS

    view = Table(title=title, title_justify="left")
    view.add_column("method", no_wrap=True)
    for column in table:
        view.add_column(
            column, justify="right" if column in NUMBERS else "left", no_wrap=column in NUMBERS, overflow="fold"
        )
    for method, row in table.iterrows():
        view.add_row(str(method), *(escape(str(text)) for text in row))
    console.print(view)


def experiment_of(words: list[str]) -> Any:
    """The experiment that words describe; the first may name a run of this machine, or a shipped one by its digest."""
    from paperlib.papers.shipped_runs import descriptions
    from paperlib.runs.profile import described

    return described(words, descriptions())


def chosen_fields(words: list[str] | None) -> dict[str, list[Any]] | None:
    """What --only was given, as `papers.table` takes it: a field named twice may have either value."""
    from paperlib.experiment import field_and_value

    fields: dict[str, list[Any]] = {}
    for name, value in map(field_and_value, words or []):
        fields.setdefault(name, []).append(value)
    return fields or None


def chosen_scale(
    scale: str,
    budget: str | None,
    names: dict[str, list[str]],
    seeds: int,
    jobs: int = 1,
    only: list[str] | None = None,
) -> str:
    """The scale that a command works at: that of --scale, or of --budget for the runs of what it names.

    names: paper -> its tables and figures, all of them where none is named; all papers where none is.
    """
    from paperlib import papers
    from paperlib.papers.scales import chosen, scale_name

    if budget is None:
        return scale_name(scale)
    runs = [
        e
        for paper in names or papers.TITLES
        for name in names.get(paper) or (*papers.tables(paper), *papers.figures(paper))
        for e in papers.experiments(paper, name, scale="paper", seeds=seeds, only=chosen_fields(only))
    ]
    return chosen(budget, list(dict.fromkeys(runs)), jobs)


@contextlib.contextmanager
def sentences(stopped: str = "the same command continues from here") -> Iterator[None]:
    """Bad input is answered with its sentence and not with a traceback, like a full disk or a process that was killed.

    Ctrl-C, or a signal to end, with what to do next.
    """
    from paperlib.runs.executors import WorkerDied

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    for stream in (sys.stdout, sys.stderr):  # a terminal may lack signs, such as that between a mean and its spread
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with contextlib.suppress(ValueError):  # not in the main thread, where signals do not arrive
        signal.signal(signal.SIGTERM, end)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    try:
        yield
    except (ValueError, OSError, WorkerDied) as error:  # OSError: a folder that cannot be written, a full disk
        console.print(f"[red]{Path(sys.argv[0]).name}:[/red] {escape(one_line(error))}", soft_wrap=True)
        raise typer.Exit(1 if isinstance(error, WorkerDied) else 2) from None
    except KeyboardInterrupt:
        console.print(f"\nstopped; {stopped}")
        raise typer.Exit(130) from None
