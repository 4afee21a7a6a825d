"""Commands on papers: their tables and figures, runs, costs, scorecard and pages."""

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from paperlib.checks import one_line
from paperlib.cli.terminal import CORES, WIDE, Jobs, Json, answer, app, console, errors, print_frame, say, sentences

Paper = Annotated[str, typer.Argument(help="fedgps, fedacd, gc_fed, fedhydra or fedimpro")]
Name = Annotated[str, typer.Argument(help="a table or figure, such as T5 or F6")]
Scale = Annotated[str, typer.Option(help="smoke, mini, small, paper, or operations per run, such as 1e14")]
Best = Annotated[str, typer.Option(help="best, which is what is run nearest to print, or a scale of run")]
Budget = Annotated[
    str | None, typer.Option(help="instead of a scale: operations per run, such as 1e14, or time for all, such as 2h")
]
Seeds = Annotated[int, typer.Option(help="number of seeds, 0 to seeds - 1")]
Where = Annotated[str, typer.Option(help="processes of this machine, or tasks on ray")]
Address = Annotated[str | None, typer.Option(help="with ray: the cluster, auto for the one this machine belongs to")]
Gpus = Annotated[float | None, typer.Option(help="with ray: GPUs of one run, such as 0.25 for four on each")]

Cells = Annotated[list[str] | None, typer.Option("--only", help="field=value of the printed runs, such as alpha=0.1")]


@app.command("list")
def list_(
    paper: Annotated[str, typer.Argument(help="one of the papers, which is quicker than all")] = "",
    seeds: Seeds = 3,
    json: Json = False,
) -> None:
    """Papers, their tables and figures, and how many runs are done at which scale."""
    import pandas as pd

    from paperlib import papers
    from paperlib.checks import whole
    from paperlib.papers.catalogue import PAPERS
    from paperlib.papers.collection import finished_digests
    from paperlib.papers.index import Use, uses
    from paperlib.papers.scales import RULES

    with sentences():
        whole("seeds", seeds, 1)
        own, shipped = finished_digests()
        finished = own | shipped
        for chosen in [paper] if paper else papers.TITLES:
            needed, rows = uses(chosen, seeds), {}
            names = [*papers.tables(chosen), *papers.figures(chosen)]
            for name in names:
                spec = papers.spec(chosen, name)
                wide = {"kind": spec.kind, "section": spec.section, "notebook": spec.notebook}
                rows[name] = {"title": spec.title} | (wide if console.width >= WIDE else {})
                for scale in RULES:
                    runs = needed[Use(chosen, name, scale)]
                    here = f" ({len(runs & own)})" if runs & own else ""
                    rows[name][scale] = f"{len(runs & finished)}/{len(runs)}{here}" if runs else "-"
            print_frame(pd.DataFrame.from_dict(rows, orient="index"), f"{papers.TITLES[chosen]} ({chosen})")
            if missing := [name for name in PAPERS[chosen].names if name not in names]:
                say(f"Not there: {', '.join(missing)}.")
        say(f"Runs done at each scale, with {seeds} seeds: in brackets here, the others are shipped.")


@app.command()
def show(
    paper: Paper,
    name: Name,
    scale: Best = "best",
    budget: Budget = None,
    seeds: Annotated[int | None, typer.Option(help="number of seeds; as many as any run of it is finished in")] = None,
    runs: Annotated[bool, typer.Option("--runs", help="the runs behind every cell, by digest")] = False,
    json: Json = False,
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
            say(f"{figure!r}\nwritten to {figure.path.with_suffix('.pdf')}")
            return
        print_result(papers.table(paper, name, scale=scale, seeds=seeds, compute=False), paper, name, scale, seeds)


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
    add: Annotated[list[Path] | None, typer.Option(help="Python file whose methods become rows")] = None,
    rest: Annotated[bool, typer.Option("--rest", help="only runs that are neither here nor shipped")] = False,
) -> None:
    """Run a table or figure here or on Ray. Ctrl-C is safe: the same command goes on from there.

    What this machine has not run yet is run, even if it was shipped; with --rest, only what `plan` counts as left.
    With --only, a part of the table: --only dataset=cifar10 --only alpha=0.05 --only alpha=0.1
    With --add, rows of your own: --add my_method.py
    """
    from paperlib import papers
    from paperlib.papers import shipped_runs
    from paperlib.papers.added import registered
    from paperlib.papers.collection import LeftOut, finished
    from paperlib.runs import executors

    with sentences():
        where = executors.executor(executor, address=address, gpus=gpus)
        scale = chosen_scale(scale, budget, {paper: [name]}, seeds, jobs, only)
        what: Any = {"scale": scale, "seeds": seeds, "only": chosen_fields(only), "add": registered(add or ())}
        make = papers.figure if name in papers.figures(paper) else papers.table
        said: list[Warning | str] = []

        def warn(warning: Warning | str, *_: Any, **__: Any) -> None:
            said.append(warning)
            errors.print(one_line(warning), soft_wrap=True, markup=False)

        with warnings.catch_warnings():
            warnings.showwarning = warn  # type: ignore[assignment]
            result = make(paper, name, **what, recompute="rest" if rest else True, jobs=jobs, executor=where).save()
        print_result(result, paper, name, scale, seeds)
        console.print(f"written to {result.path}.*")
        mine = finished(papers.experiments(paper, name, **what), shipped=False)
        pairs = [(run.history, theirs.history) for e, run in mine.items() if (theirs := shipped_runs.find(e))]
        if pairs and not rest:
            distance = max(abs(ours.test_accuracy - theirs.test_accuracy).max() for ours, theirs in pairs)
            say(f"{len(pairs)} of these runs are shipped, too: in every round both agree within {distance:.2f} points.")
        if any(isinstance(warning, LeftOut) for warning in said):
            raise typer.Exit(1)


@app.command()
def reproduce(
    paper: Annotated[list[str] | None, typer.Argument(help="papers; without one, all five")] = None,
    scale: Best = "best",
    budget: Budget = None,
    seeds: Annotated[int | None, typer.Option(help="number of seeds; as many as each notebook shows")] = None,
    jobs: Jobs = CORES,
    recompute: Annotated[bool, typer.Option(help="run here what this machine has not run, even if shipped")] = False,
    executor: Where = "processes",
    address: Address = None,
    gpus: Gpus = None,
) -> None:
    """Run the notebooks of papers at a scale, then build the scorecard and the gallery figures/index.html."""
    from paperlib.runs import executors

    with sentences():
        from paperlib.reports.reproduce import reproduce as remake

        started = time.perf_counter()
        where = executors.executor(executor, address=address, gpus=gpus)
        scale = chosen_scale(scale, budget, dict.fromkeys(paper or [], []), seeds or 1, jobs)
        page = remake(*(paper or []), scale=scale, seeds=seeds, jobs=jobs, recompute=recompute, executor=where)
        say(f"{page} ({time.perf_counter() - started:.0f} s)")


@app.command()
def plan(
    paper: Annotated[str, typer.Argument(help="one of the papers; without it, all")] = "",
    name: Annotated[str, typer.Argument(help="one of its tables or figures; without it, all")] = "",
    scale: Scale = "paper",
    budget: Budget = None,
    seeds: Seeds = 3,
    jobs: Jobs = CORES,
    only: Cells = None,
    json: Json = False,
) -> None:
    """Estimate the cost of tables and figures before any run: runs, samples, operations, and hours on this machine."""
    from paperlib.papers.scales import RULES
    from paperlib.reports import plan as planning

    with sentences():
        began, busy = time.perf_counter(), time.process_time()
        names = {paper: [name] if name else []} if paper else {}
        scale = chosen_scale(scale, budget, names, seeds, jobs, only)
        table = planning.sizes(planning.grids(paper, scale, seeds, name, chosen_fields(only)), jobs)
        named = f"Scale {scale}" if scale in ("best", *RULES) else f"Budget of {scale} operations"
        print_frame(planning.as_text(table), f"{named}, {seeds} seeds")
        had = min(1.0, (time.process_time() - busy) / (time.perf_counter() - began))
        say(f"{planning.NOTE} {planning.LOAD.format(had)}")
        for line in planning.settings(paper, scale, name, chosen_fields(only)) if paper else ():
            say(f"- {line}")


@app.command()
def scorecard(json: Json = False) -> None:
    """Judge how far the tables are reproduced, and which of the papers' claims hold in our runs."""
    from paperlib import papers
    from paperlib.reports import gallery
    from paperlib.reports import scorecard_page as pages
    from paperlib.reports.scorecard import scorecard as judge

    with sentences():
        card = judge()
        for paper, title in papers.TITLES.items():
            print_frame(pages.scores(card, paper).drop(columns="title"), title)
            claims = pages.claims(card, paper).set_index("claim")
            claims = claims.loc[claims.verdict != "not run", ["printed", "verdict", "ours", "from", "scale"]]
            print_frame(claims, f"Claims of {title} that have runs")
        say(f"written to {pages.write_page(card)}, which says how to read the columns")
        gallery.build()  # which has a link to it


@app.command("results-page")
def results_page() -> None:
    """Every finished run on one page: curves, ours against print, paired differences, claims. It needs no network."""
    from paperlib.reports import gallery
    from paperlib.reports.results_page import write_page

    with sentences():
        say(f"written to {write_page()}")
        gallery.build()  # which has a link to it


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="for runs.parquet and columns.csv; replaces an export only")],
) -> None:
    """Write all finished runs, here and shipped, as one table (parquet) with a dictionary of its columns (CSV)."""
    from paperlib.reports.export import export as write_all

    with sentences():
        say(f"written to {write_all(folder)}")


def print_result(result: Any, paper: str, name: str, scale: str, seeds: int) -> None:
    """Print a table of results in parts that fit the terminal, anything else as it says itself; then the caption."""
    from paperlib.display.tables import ResultTable
    from paperlib.papers.specs import REST

    if not isinstance(result, ResultTable):
        say(repr(result))
        return
    caption = result.caption.replace(
        REST, f"paperlib run {paper} {name} --scale {scale} --seeds {seeds} --rest runs the rest"
    )
    if answer:
        print_frame(result, result.title)
        return say(caption)
    text = result.text(("[bold]", "[/bold]"), escape=escape).map(Text.from_markup)
    columns: Any = text.columns
    heads = [f"{label}\n{result.heads.get(label, '')}\n".replace("\n\n", "\n") for label, _ in columns]
    kinds = enumerate(kind for _, kind in columns)
    text.columns = [kind if n and heads[n] == heads[n - 1] else heads[n] + kind for n, kind in kinds]
    fit = 2 * max(1, (console.width - 20) // 45)
    for first in range(0, text.shape[1], fit):
        print_frame(text.iloc[:, first : first + fit], "" if first else result.title)
    say(caption)


def chosen_fields(words: list[str] | None) -> dict[str, list[Any]] | None:
    """Return the values of --only as `papers.table` takes them: a field named twice may have either value."""
    from paperlib.runs.profile import field_and_value

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
    """Return the scale that a command works at: that of --scale, or of --budget for the runs that it names.

    names: paper -> its tables and figures, all of them where none is named; all papers where none is.
    """
    from paperlib import papers
    from paperlib.papers.scales import chosen, scale_name

    if budget is None:
        return scale_name(scale, "best")
    runs = [
        e
        for paper in names or papers.TITLES
        for name in names.get(paper) or (*papers.tables(paper), *papers.figures(paper))
        for e in papers.experiments(paper, name, scale="paper", seeds=seeds, only=chosen_fields(only))
    ]
    return chosen(budget, list(dict.fromkeys(runs)), jobs)
