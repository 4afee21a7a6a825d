"""The time of a run by part: ``paperlib profile dataset=mnist model=cnn`` or ``profile(experiment)``.

Clients are trained in the calling thread, one after the other, so that every moment belongs to one part. The timed
rounds run without torch's profiler, which makes short operations several times slower; the trace is recorded in one
further round.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from paperlib import checks
from paperlib.checks import one_line, quote
from paperlib.experiment import Experiment, check_fields, fields_in
from paperlib.federated.engines import ENGINES, Engine, choose
from paperlib.federated.simulator import sampled_clients, simulate
from paperlib.runs.check import check
from paperlib.runs.devices import arithmetic, chosen_device, current
from paperlib.runs.fingerprints import fingerprints, forgive
from paperlib.runs.measures import measures_of
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.runs.store import Store
from paperlib.timing import Part, listening
from paperlib.workers import worker_pool

WARM_UP = 1  # untimed rounds: libraries choose their algorithms, graphs are recorded, memory is allocated
LARGEST = 1_000_000  # bytes of a description
PREFIX = re.compile("[0-9a-f]{4,15}")
DIGITS = {"seconds": 3, "percent": 1, "per round": 3}
PASSES = ["forward", "backward", "graph"]
PARTS: dict[Part, str] = {
    "data": "draws, gather, augmentation",  # and normalization
    "forward": "passes through the network",  # of training, and of hooks
    "backward": "gradients of those passes",
    "method": "loss, client hooks, local step",  # but for the passes in them
    "graph": "recorded steps, played as one",  # the parts of a CUDA graph cannot be timed
    "aggregation": "server: broadcast, aggregate",  # and the rest of a round outside of training
    "evaluation": "test set and measures",  # all passes included
    "store": "history and checkpoint",
    "other": "engine, random streams, loop",
}


@dataclass(frozen=True)
class Profile:
    """Measured times.

    seconds: one row per round, one column per part of `PARTS`. whole: wall-clock seconds of these
    rounds. samples: training images, counted in every local epoch. engine: the one used. evaluated: number of rounds
    with an evaluation.
    """

    experiment: Experiment
    device: str
    engine: Engine
    seconds: pd.DataFrame
    whole: float
    samples: int
    evaluated: int

    @property
    def table(self) -> pd.DataFrame:
        """Per part: seconds of all rounds, percent of them, and seconds per round."""
        total = self.seconds.sum()
        return pd.DataFrame({"seconds": total, "percent": 100 * total / total.sum(), "per round": self.seconds.mean()})

    def text(self) -> pd.DataFrame:
        """Return the table as it is printed, with what each part is, and its sum last."""
        table = self.table.drop(index=[] if self.table.seconds["graph"] else ["graph"])
        table.loc["whole"] = table.sum()
        text = pd.DataFrame({name: table[name].map(f"{{:.{digits}f}}".format) for name, digits in DIGITS.items()})
        text.insert(0, "what it is", [PARTS.get(part, "") for part in table.index])
        return text.rename_axis("part")

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.whole

    @property
    def passes(self) -> float:
        """Percent of the time in forward and backward passes of training, including replayed graphs."""
        return float(self.table.percent[PASSES].sum())

    def __str__(self) -> str:
        return (
            f"{self.samples_per_second:,.0f} samples per second; {self.passes:.1f} percent of the time is forward and "
            f"backward passes, which a plain loop needs as well"
        )


def profile(
    experiment: Experiment,
    *,
    rounds: int = 3,
    engine: str = "auto",
    device: str = "auto",
    trace: Path | str | None = None,
) -> Profile:
    """Run the first rounds of an experiment and time its parts. No run is read or stored.

    rounds: number of timed rounds, after one to warm up. engine, device: as in `paperlib.run`. trace: file for a trace
    of one more round, for Perfetto and chrome://tracing, with the parts as ranges; a name that ends in .gz is
    compressed. On a GPU every change of part waits for pending work, so that times belong to their parts; the traced
    round does not wait. The part "store" writes every round to a temporary folder; a real run may save fewer rounds
    (`paperlib.runs.store.Saver`). Raises ValueError for impossible requests and for a model that becomes NaN or
    infinite.
    """
    on = chosen_device(device)
    checks.one_of("engine", engine, ENGINES)
    check(experiment)
    checks.whole("rounds", rounds, 1)
    if trace is not None and not _writable(trace):
        raise ValueError(f"trace is {quote(_named(trace))}, but must be a file in a folder that exists")
    total = WARM_UP + rounds + (trace is not None)
    e = experiment.replace(rounds=max(experiment.rounds, total + 1))  # no timed round is the last one, which does more
    data, made_with = dataset_of(e, on), fingerprints(e)
    with TemporaryDirectory() as folder, worker_pool(1), arithmetic(e.precision), current(on):
        method, progress = prepare(e, data)
        chosen = choose(engine, on)
        shelf = Store(folder)
        shelf.folder(e).mkdir()
        rows = shelf.resume(e, progress, {})
        playing = simulate(method, progress, CallingThread(), chosen, measures_of(e))

        def play() -> bool:
            """One round as in `paperlib.run`; returns whether it was evaluated."""
            row = next(playing, None)
            if row is None:
                raise ValueError(f"{e} met a NaN or an infinity in round {progress.round}: there is no more to measure")
            rows.append(row)
            shelf.save(e, rows, progress, {})
            return "test_accuracy" in row

        for _ in range(WARM_UP):
            play()
        numbers = range(WARM_UP + 1, WARM_UP + rounds + 1)
        clock, evaluated, seconds = Clock(_wait if on != "cpu" else None), 0, []
        started = time.perf_counter()
        with listening(clock):
            for _ in numbers:
                evaluated += play()
                seconds.append(clock.read())
        whole = time.perf_counter() - started
        if trace is not None:
            _trace(play, on, Path(trace))
        forgive(e, made_with)
    sampled = [client for number in numbers for client in sampled_clients(e, number)]
    samples = sum(sum(e.epoch_sizes(n)) for n in method.context.sizes[sampled].tolist())
    table = pd.DataFrame(seconds, index=pd.Index(numbers, name="round"), columns=list(PARTS))
    return Profile(experiment, on, chosen, table, whole, samples, evaluated)


def _named(path: object) -> object:
    return str(path) if isinstance(path, Path) else path


def _writable(path: Path | str) -> bool:
    """Return True if the path names a file in an existing folder; os.path accepts any name without an error."""
    if not isinstance(path, Path | str) or not 0 < len(os.path.basename(path)) < 250 or os.path.isdir(path):
        return False
    return os.path.isdir(os.path.dirname(path) or ".")


class CallingThread(Executor):
    """Works lazily in the calling thread, client after client."""

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        return map(fn, *iterables)


class Clock:
    """Adds up the time of each part: a moment belongs to the innermost open part.

    An evaluation counts as one part with everything inside. wait: called at every change of part, before the clock is
    read.
    """

    def __init__(self, wait: Callable[[], None] | None = None):
        self.wait = wait
        self.open: list[Part] = ["other"]
        self.seconds: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self.last = time.perf_counter()

    def enter(self, name: Part) -> None:
        self.turn()
        self.open.append("evaluation" if self.open[-1] == "evaluation" else name)

    def leave(self) -> None:
        self.turn()
        self.open.pop()

    def turn(self) -> None:
        """Credit the open part with the time since the last change."""
        if self.wait is not None:
            self.wait()
        now = time.perf_counter()
        self.seconds[self.open[-1]] += now - self.last
        self.last = now

    def read(self) -> dict[Part, float]:
        """Seconds per part since the last call."""
        self.turn()
        taken, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return taken


class Ranges:
    """Passes the parts on to torch's profiler."""

    def __init__(self) -> None:
        self.open: list[record_function] = []

    def enter(self, name: Part) -> None:
        self.open.append(record_function(name))
        self.open[-1].__enter__()

    def leave(self) -> None:
        self.open.pop().__exit__(None, None, None)


def _trace(play: Callable[[], object], device: str, path: Path) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler prints when it starts and stops
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device != "cpu")
    with torch_profile(activities=activities) as profiler, listening(Ranges()):
        play()
    profiler.export_chrome_trace(str(path))


def _wait() -> None:
    if not torch.cuda.is_current_stream_capturing():  # no synchronisation while a graph is recorded
        torch.cuda.synchronize()


def described(words: Sequence[str], shipped: Mapping[str, Mapping[str, Any]] | None = None) -> Experiment:
    """The experiment given by words ``field=value``, with values in JSON or plain text.

    The first word may instead name a run, which the other words change: its digest in the store, its folder, its file
    ``experiment.json``, or its digest in ``shipped``, digest -> fields. Raises ValueError, in one sentence that names
    the word.
    """
    values: dict[str, Any] = {}
    for position, word in enumerate(words):
        if "=" in word:
            name, value = field_and_value(word)
            values[name] = value
        elif position == 0:
            values = _of_run(word, shipped or {})
        else:
            raise ValueError(f"{quote(word)} is not of the form field=value; only the first word may name a run")
    experiment = Experiment(**values)
    check(experiment)
    return experiment


def field_and_value(word: str) -> tuple[str, Any]:
    """Field and value of ``field=value`` from the command line; the value in JSON or plain text.

    Raises ValueError for another form and for a name that is no field of an `Experiment`.
    """
    name, given, text = word.partition("=")
    if not given:
        raise ValueError(f"{quote(word)} is not of the form field=value")
    check_fields([name], f"{quote(word)}: ")
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)  # as Python and Hydra write them
    try:
        return name, json.loads(text)
    except (ValueError, RecursionError):
        return name, text


def _of_run(word: str, shipped: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    shelf = Store()
    places = [Path(word), Path(word) / "experiment.json", shelf.path / word / "experiment.json"]
    path = next((place for place in places if os.path.isfile(place)), None)
    if path is not None:
        if (size := path.stat().st_size) > LARGEST:
            raise ValueError(f"{one_line(path)} has {size:,} bytes, but the description of a run at most {LARGEST:,}")
        return fields_in(path.read_bytes(), one_line(path))
    if word in shipped:
        return dict(shipped[word])
    own = shelf.digests() if PREFIX.fullmatch(word) else set()
    digests = sorted(digest for digest in {*own, *shipped} if PREFIX.fullmatch(word) and digest.startswith(word))
    if len(digests) > 1:
        raise ValueError(f"{quote(word)} begins {len(digests)} digests, {digests[0]} and {digests[1]} among them")
    if digests:
        return _of_run(digests[0], shipped)
    where = f"nor the file or folder of a run, nor the beginning of a digest in {shelf.path}"
    raise ValueError(f"{quote(word)} is neither field=value, {where}{' or of a shipped run' if shipped else ''}")
