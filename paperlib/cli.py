"""The command line, ``paperlib --help``."""

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import time
import warnings
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
SHORT = 24  # characters of a column that is not folded
WIDE = 150  # characters per line, from which on less important columns are shown
app = typer.Typer(no_args_is_help=True)
console, errors = Console(), Console(stderr=True)

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
    try:
        app(prog_name=name)
    except OSError as error:  # of help or version, which are printed outside of `sentences`
        sys.exit(_refused(error))


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
    import pandas as pd

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
            rows = {}
            for name in names:
                spec = papers.spec(chosen, name)
                experiments = dict.fromkeys(needed(spec, seeds))
                rows[name] = {"title": spec.title, "kind": spec.kind, "section": spec.section}
                rows[name] |= {"notebook": spec.notebook} if console.width >= WIDE else {}
                for scale in RULES:
                    runs = {digest(e, scale) for e in experiments}
                    here = f" ({len(runs & own)})" if runs & own else ""
                    rows[name][scale] = f"{len(runs & finished)}/{len(runs)}{here}" if runs else "-"
            print_frame(pd.DataFrame.from_dict(rows, orient="index"), f"{papers.TITLES[chosen]} ({chosen})")
            if missing := [name for name in PAPERS[chosen].names if name not in names]:
                console.print(f"Not there: {', '.join(missing)}.", soft_wrap=True)
        console.print(f"Runs done at each scale, with {seeds} seeds: in brackets here, the others are shipped.")


@app.command()
def show(
    paper: Paper,
    name: Name,
    scale: Scale = "small",
    budget: Budget = None,
    seeds: Annotated[int | None, typer.Option(help="number of seeds; as many as any run of it is finished in")] = None,
    runs: Annotated[bool, typer.Option("--runs", help="the runs behind every cell, by digest")] = False,
) -> None:
    """Print a table beside what we have of it; nothing is run."""
    from paperlib import papers
    from paperlib.papers.index import SEEDS

    with sentences():
        scale = chosen_scale(scale, budget, {paper: [name]}, seeds or SEEDS)
        behind = papers.runs_behind(paper, name, scale=scale, seeds=SEEDS if seeds is None else seeds)
        seeds = seeds or max(behind.seed, default=2) + 1
        if runs:
            print_frame(behind, f"{papers.TITLES[paper]} {name}")
            return
        if name in papers.figures(paper):
            figure = papers.figure(paper, name, scale=scale, seeds=seeds, compute=False).save()
            console.print(f"{figure!r}\nwritten to {figure.path.with_suffix('.pdf')}", soft_wrap=True, markup=False)
            return
        print_result(papers.table(paper, name, scale=scale, seeds=seeds, compute=False), paper, name, scale, seeds)


def print_result(result: Any, paper: str, name: str, scale: str, seeds: int) -> None:
    """Print a table of results in parts that fit the terminal, anything else as it says itself; then the caption."""
    from paperlib.display.tables import ResultTable
    from paperlib.papers.specs import REST

    if not isinstance(result, ResultTable):
        console.print(repr(result), soft_wrap=True, markup=False)
        return
    text = result.text(("[bold]", "[/bold]"), escape=escape).map(Text.from_markup)
    heads: Any = text.columns
    text.columns = [f"{label}\nours" if ours == "ours" else "\nprinted" for label, ours in heads]
    fit = 2 * max(1, (console.width - 20) // 45)
    for first in range(0, text.shape[1], fit):
        print_frame(text.iloc[:, first : first + fit], "" if first else result.title)
    rest = f"paperlib run {paper} {name} --scale {scale} --seeds {seeds} --rest runs the rest"
    console.print(result.caption.replace(REST, rest), soft_wrap=True, markup=False)


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
    from paperlib.papers.collection import LeftOut
    from paperlib.runs import executors

    with sentences():
        where = executors.executor(executor, address=address, gpus=gpus)
        scale = chosen_scale(scale, budget, {paper: [name]}, seeds, jobs, only)
        make = papers.figure if name in papers.figures(paper) else papers.table
        said: list[Warning | str] = []

        def say(warning: Warning | str, *_: Any, **__: Any) -> None:
            said.append(warning)
            errors.print(one_line(warning), soft_wrap=True, markup=False)

        with warnings.catch_warnings():
            warnings.showwarning = say  # type: ignore[assignment]
            result = make(
                paper, name, scale=scale, seeds=seeds, recompute="rest" if rest else True, jobs=jobs,
                executor=where, only=chosen_fields(only),
            ).save()  # fmt: skip
        print_result(result, paper, name, scale, seeds)
        console.print(f"written to {result.path}.*")
        if any(isinstance(warning, LeftOut) for warning in said):
            raise typer.Exit(1)


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
        print_frame(planning.as_text(table), f"{named}, {seeds} seeds")
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
            print_frame(pages.with_content(pages.scores(card, paper).drop(columns="title")), title)
            claims = pages.claims(card, paper).set_index("claim")
            print_frame(claims[["printed", "verdict", "ours", "from", "scale"]], f"Claims of {title}")
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
    from paperlib.reports.outputs import check_file
    from paperlib.runs.profile import profile as play

    with sentences("nothing was kept"):
        kind = "a trace of torch's profiler", "schemaVersion", "deviceProperties"
        file = None if trace is None else check_file("trace", trace, *kind)
        measured = play(experiment_of(words), rounds=rounds, engine=engine, device=device, trace=file)
        first, last = measured.seconds.index[[0, -1]]
        engine = measured.engine.name + (f" ({measured.engine.reason})" if measured.engine.reason else "")
        timed = f"rounds {first} to {last}, {measured.evaluated} evaluated"
        title = f"{measured.experiment}\n{timed}; {measured.device}, {engine}"
        console.print(title, soft_wrap=True, markup=False)
        print_frame(measured.text())
        console.print(str(measured), soft_wrap=True, markup=False)


@app.command()
def partition(
    file: Annotated[Path, typer.Argument(help="a name that ends in .json; replaces an earlier partition only")],
    words: Annotated[list[str], typer.Argument(help="fields of the experiment as field=value; the first may be a run")],
) -> None:
    """Write which training images each client of an experiment has, for other programs and as partition=file.json."""
    from paperlib import partition_files
    from paperlib.reports.outputs import check_file
    from paperlib.runs.prepare import dataset_of, parts_of

    with sentences("nothing was written"):
        check_file("file", str(file), "a partition", "labels_sha256")
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
        str, typer.Argument(help="folder with a subfolder per class; or .zip, .parquet, .tar, .npz, ...")
    ],
    size: Annotated[int | None, typer.Option(help="height and width in pixels, if images must be resized")] = None,
    test_share: Annotated[
        float, typer.Option(help="where there is no test or validation set: share of the test set")
    ] = 0.2,
) -> None:
    """Make a data set of images of one's own, to be used by its name like any other."""
    from paperlib.data.datasets import load
    from paperlib.packing import pack_from

    with sentences("nothing was written"):
        for note in pack_from(name, source, size, test_share):
            console.print(f"{note}.", soft_wrap=True, markup=False)
        packed = load(name)
        counts = f"{len(packed.train_labels):,} training and {len(packed.test_labels):,} test images"
        console.print(
            f"{counts} of {packed.num_classes} classes, shape {packed.shape}, in {packed.source}", soft_wrap=True
        )


@app.command()
def verify(store: Annotated[str, typer.Argument(help="folder of the runs; without it the usual one")] = "") -> None:
    """Check every file of a store against its checksum; ends with 1 where one is damaged, and says what mends it."""
    from paperlib.runs.store import Store
    from paperlib.runs.verify import verify as check

    with sentences():
        path = Store(store or None).path
        if not path.is_dir():
            raise ValueError(f"store is {str(path)!r}, but there is no such folder")
        errors = list(check(path))
        for error in errors:
            console.print(error, soft_wrap=True, markup=False, highlight=False)
        console.print(f"{len(errors)} errors in {path}", soft_wrap=True, markup=False, highlight=False)
        if errors:
            raise typer.Exit(1)


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
            print_frame(part)
        console.print(method_table.NOTE, soft_wrap=True)
        print_frame(method_table.one_shot_methods().set_axis(words, axis="columns"), "one-shot methods")


def print_frame(frame: Any, title: str = "") -> None:
    """Print a table of texts, its index first: short columns whole, numbers to the right, long texts folded."""
    view = Table(box=SIMPLE, title=escape(title) or None, title_justify="left")
    texts = frame.reset_index(names=str(frame.index.name or ""))
    texts = texts.map(lambda text: text if isinstance(text, Text) else Text(str(text)))
    for name, column in texts.items():
        short = all(len(text) <= SHORT for text in column)
        number = sum(text.plain[:1] in "+-<0123456789" for text in column) > len(column) / 2
        heading = Text(str(name).replace(", ", "\n"))
        view.add_column(heading, justify="right" if short and number else "left", no_wrap=short, overflow="fold")
    for row in texts.itertuples(index=False, name=None):
        view.add_row(*row)
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
        code = _refused(error)
        raise typer.Exit(1 if isinstance(error, WorkerDied) else code) from None
    except KeyboardInterrupt:
        errors.print(f"\nstopped; {stopped}")
        raise typer.Exit(130) from None


def _refused(error: Exception) -> int:
    """Print the sentence of an error, whatever has become of the standard output; return the exit status."""
    errors.print(f"[red]{Path(sys.argv[0]).name}:[/red] {escape(one_line(error))}", soft_wrap=True)
    try:
        sys.stdout.flush()
    except OSError:  # it is full or closed: what is left goes nowhere, so that Python does not try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2
