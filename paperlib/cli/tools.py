"""Commands on a run, a data set or a method."""

from pathlib import Path
from typing import Annotated, Any

import typer

from paperlib.cli.terminal import CORES, Jobs, Json, answer, app, console, print_frame, say, sentences


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
        str | None, typer.Option(help="file for a further round, to look at in Perfetto; replaces a trace only")
    ] = None,
) -> None:
    """Measure the time of an experiment: seconds per part of its first rounds. No run is changed or stored."""
    from paperlib.reports.outputs import check_file
    from paperlib.runs.profile import profile as play

    with sentences("nothing was kept"):
        kind = "a trace of torch's profiler", "schemaVersion", "deviceProperties"
        file = None if trace is None else check_file("trace", trace, *kind)
        measured = play(experiment_of(words), rounds=rounds, engine=engine, device=device, trace=file)
        first, last = measured.seconds.index[[0, -1]]
        engine = measured.engine.name + (f" ({measured.engine.reason})" if measured.engine.reason else "")
        timed = f"rounds {first} to {last}, {measured.evaluated} evaluated"
        say(f"{measured.experiment}\n{timed}; {measured.device}, {engine}")
        print_frame(measured.text())
        say(str(measured))


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
        say(f"{len(parts)} clients with {sum(map(len, parts)):,} images, written to {file}")


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
            say(error)
        say(f"{len(errors)} errors in {path}")
        if errors:
            raise typer.Exit(1)


@app.command()
def diagnose(
    run: Annotated[str, typer.Argument(help="a finished run: digest, folder or experiment.json")], json: Json = False
) -> None:
    """Find out why a run diverges: signs in its history, the known failure that fits, the change that mends it."""
    from paperlib.papers.collection import finished
    from paperlib.reports import diagnosis

    with sentences():
        e = experiment_of([run])
        folder = Path(run) if Path(run).is_dir() else Path(run).parent
        runs = finished([e], folder.parent if folder.name == e.digest else None)
        if not runs:
            raise ValueError(f"{e} is not finished: there is no history to look at")
        say(str(diagnosis.diagnose(runs[e])))


@app.command()
def methods(
    name: Annotated[str, typer.Argument(help="one method in full, such as gc_fed")] = "", json: Json = False
) -> None:
    """The methods side by side: source, memory, traffic, tables. With a name: its options, hooks, combinations."""
    from paperlib.reports import method_table

    with sentences():
        if name:
            say(method_table.card(name).text())
            return
        table = method_table.as_text(method_table.methods())
        words = ["paper", "what it changes", "tables"]
        parts = [table] if console.width >= 170 else [table.drop(columns=words), table[words]]  # below each other
        for part in parts:
            print_frame(part)
        say(method_table.NOTE)
        print_frame(method_table.one_shot_methods().set_axis(words, axis="columns"), "one-shot methods")


@app.command()
def duel(
    file: Annotated[Path, typer.Argument(help="Python file that registers one method or several")],
    setting: Annotated[str, typer.Option(help="of the league, such as digits")] = "digits",
    jobs: Jobs = CORES,
    json: Json = False,
) -> None:
    """Tune a method of one's own by the rule of the league, and show its place among all others."""
    from paperlib.papers.added import registered_by
    from paperlib.reports import duel as league

    with sentences():
        table = league.duel(*registered_by(file), setting=setting, jobs=jobs, progress=not answer)
        print_frame(table, f"the league on {setting}")
        say(f"digest of all runs: {table.attrs['digest']}")
        if answer:
            say(table.attrs["bibtex"])


@app.command()
def notebooks(
    folder: Annotated[Path, typer.Argument(help="a new folder, or an empty one")],
    student: Annotated[bool, typer.Option("--student", help="without solutions and checks of the exercises")] = False,
) -> None:
    """Write the notebooks of the course, of the papers and for a method of one's own into a folder."""
    from paperlib.teaching.copies import write_copies

    with sentences("the folder is incomplete: remove it"):
        number = write_copies(folder, student)
        say(f"{number} notebooks, written to {folder}; begin with {folder / 'start.ipynb'}")


def experiment_of(words: list[str]) -> Any:
    """The experiment that words describe; the first may name a run of this machine, or a shipped one by its digest."""
    from paperlib.papers.shipped_runs import descriptions
    from paperlib.runs.profile import described

    return described(words, descriptions())
