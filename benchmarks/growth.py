"""What clients, rounds and finished runs cost as they become many: CPU seconds, each measured in a process of its own.

python benchmarks/growth.py [clients] [rounds] [runs]    measure and print
python benchmarks/growth.py --write                      measure all, and write the section of RESULTS.md
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from ratios import hardware

from paperlib import Experiment, run
from paperlib import files as paperlib_files
from paperlib.files import write_record, write_tensors
from paperlib.papers import shipped_runs
from paperlib.reports import markdown
from paperlib.runs.store import PARAMETERS, SUMMARY, Store

RESULTS = Path(__file__).with_name("RESULTS.md")
SIZES = {
    "clients": (10, 100, 1_000, 10_000),
    "rounds": (100, 500, 1_000, 2_000, 3_000),
    "runs": (10, 100, 1_000, 20_000),
}
SMALL = Experiment(
    dataset="digits", train_size=240, test_size=100, model="mlp", width=0.1, alpha=1.0, clients=6, sampled=3,
    batch_size=20, lr=0.05,
)  # fmt: skip


def clients(count: int, folder: Path) -> dict[str, float]:
    """SCAFFOLD, which keeps a state per client: 20 rounds of 10 clients with two samples each."""
    e = SMALL.replace(
        method="scaffold", dataset="mnist", clients=count, sampled=10, partition="iid", train_size=2 * count, rounds=20
    )
    started = time.process_time()
    run(e, store=folder, workers=1)
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"seconds": time.process_time() - started, "kilobytes": used / 1000}


def rounds(count: int, folder: Path) -> dict[str, float]:
    """A run that is evaluated after every round."""
    run(SMALL.replace(rounds=20), store=folder / "warm", workers=1)
    started = time.process_time()
    run(SMALL.replace(rounds=count), store=folder / "played", workers=1)
    return {"milliseconds per round": 1000 * (time.process_time() - started) / count}


def runs(count: int, folder: Path) -> dict[str, float]:
    """Listing a store, without and with its index; a table, the result browser, the pages, an export; peak memory."""
    from paperlib import papers
    from paperlib.cli.papers import list_
    from paperlib.reports.export import export
    from paperlib.reports.results_page import write_page
    from paperlib.reports.scorecard import scorecard
    from paperlib.teaching.widgets.results import ResultBrowser

    fill(folder, count)
    os.environ["PAPERLIB_RUNS"] = str(folder)
    seconds = {}
    for name, ask in {
        "first listing": lambda: Store(folder).digests(),
        "list gc_fed": lambda: list_("gc_fed"),
        "table T5": lambda: papers.table("gc_fed", "T5", scale="small", compute=False),
        "result browser": lambda: ResultBrowser(folder, ""),
        "list": list_,
        "results page": lambda: write_page(folder / "pages"),
        "export": lambda: export(folder / "exported"),
        "scorecard": scorecard,
    }.items():
        started = time.process_time()
        ask()
        seconds[name] = time.process_time() - started
    return seconds | {"megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}


def fill(folder: Path, count: int) -> None:
    """A store of so many runs: the shipped ones, as if they had been played here, and the same with other seeds."""
    paperlib_files.os.fsync = lambda file: None  # type: ignore[attr-defined]  # in this process, which ends
    shipped = [
        run for name in {name for name, _ in shipped_runs.summaries(shipped_runs.REFERENCE).values()}
        for run in shipped_runs._read(shipped_runs.REFERENCE, name).values()
    ]  # fmt: skip
    store, none = Store(folder), torch.zeros(1)
    for number in range(count):
        turn, place = divmod(number, len(shipped))
        shown = shipped[place]
        e = shown.experiment.replace(seed=shown.experiment.seed + 100 * turn)
        path = store.folder(e)
        path.mkdir(parents=True)
        (path / "experiment.json").write_text(e.to_json())
        rows = json.loads(shown.history.to_json(orient="records", double_precision=15))
        lines = [json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows]
        (path / "history.jsonl").write_text("".join(line + "\n" for line in lines))
        sums = {
            PARAMETERS: write_tensors(path / PARAMETERS, {"theta": none, "buffers": none}),
            "history.jsonl": paperlib_files.sha256_of(path / "history.jsonl"),
        }
        write_record(path / SUMMARY, {**shown.summary, "digest": e.digest, "files": sums})


def measured(kind: str, size: int) -> dict[str, float]:
    """What one size costs, in a process of its own."""
    answer = subprocess.run([sys.executable, __file__, kind, str(size)], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def section() -> str:
    """All sizes as Markdown: a table for each kind."""
    today = time.strftime("%Y-%m-%d")
    parts = [f"## Growth\n\nCPU seconds by `python benchmarks/growth.py --write` on {today}, {hardware()}.\n"]
    for kind, sizes in SIZES.items():
        rows = {size: measured(kind, size) for size in sizes}
        lines = [[f"{size:,}", *(f"{value:.2f}" for value in row.values())] for size, row in rows.items()]
        parts.append(markdown.table([kind, *rows[sizes[0]]], lines))
    return "\n".join(parts)


def main(words: list[str]) -> None:
    """Measure each size in a process of its own, and print a line for it or write all."""
    if words == ["--write"]:
        markdown.write_between(RESULTS, "growth", section())
        return
    if len(words) == 2 and words[1].isdecimal():
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(globals()[words[0]](int(words[1]), Path(folder))))
        return
    for kind in words or SIZES:
        for size in SIZES[kind]:
            row = measured(kind, size)
            print(f"{size:>6,} {kind}: " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
