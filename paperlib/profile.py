"""Where the time of a run goes: ``paperlib profile dataset=mnist model=cnn`` or ``profile(experiment)``.

Clients are trained in the calling thread, one after the other, so that every moment belongs to one part. The rounds
that are timed run without torch's profiler, which makes short operations several times slower; the trace is taken of
one further round.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from paperlib import checks
from paperlib.checks import one_line, shown
from paperlib.experiment import Experiment, check_experiment, field_and_value, fields_in
from paperlib.federated.engines import Engine, choose
from paperlib.federated.simulator import dataset_of, prepare, sampled_clients, simulate
from paperlib.federated.workers import arithmetic, worker_pool
from paperlib.parts import PARTS, Part, listening
from paperlib.runner import target
from paperlib.store import Store, at

T = TypeVar("T")

WARM_UP = 1  # rounds that do not count: libraries choose their algorithms, graphs are recorded, memory is allocated
PASSES = ["forward", "backward", "graph"]


@dataclass(frozen=True)
class Profile:
    """What was measured.

    seconds: one row per round, one column per part of `paperlib.parts.PARTS`. whole: seconds of those rounds by the
    clock on the wall. samples: images that clients trained on, counted in every local epoch. engine: the one that
    trained. evaluated: how many of the rounds were evaluated.
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

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.whole

    @property
    def passes(self) -> float:
        """Percent of the time that goes into forward and backward passes of training, replayed graphs included."""
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
    """Play the first rounds of an experiment and measure what its parts take. No run is read or stored.

    rounds: how many are timed, after one to warm up. engine, device: as in `paperlib.run`. trace: file for one more
    round in the format that Perfetto and chrome://tracing read, the parts visible as ranges; a name that ends in .gz
    is compressed. On a GPU, every border between parts waits until its work is done, so that the times belong to the
    parts; the round of the trace does without. What the part "store" writes goes to a temporary folder, after every
    round, while a run saves fewer rounds if this takes long (`paperlib.store.Saver`). Raises
    ValueError for impossible requests, and for a model that becomes NaN or infinite on the way.
    """
    on = target(device, engine)
    check_experiment(experiment)
    checks.whole("rounds", rounds, 1)
    if trace is not None and not _writable(trace):
        raise ValueError(f"trace is {shown(_named(trace))}, but must be a file in a folder that exists")
    total = WARM_UP + rounds + (trace is not None)
    e = experiment.replace(rounds=max(experiment.rounds, total + 1))  # what only a last round does is not typical
    data = dataset_of(e, on)
    with TemporaryDirectory() as folder, worker_pool(1), arithmetic(e.precision):
        method, progress = prepare(e, data)
        chosen = choose(engine, method, on)
        shelf = Store(folder)
        shelf.folder(e).mkdir()
        rows = shelf.resume(e, progress, data.fingerprint)
        playing = simulate(method, progress, CallingThread(), chosen)

        def play() -> bool:
            """One round as `paperlib.run` plays it; whether it was evaluated."""
            row = next(playing, None)
            if row is None:
                raise ValueError(f"{e} met a NaN or an infinity in round {progress.round}: there is no more to measure")
            rows.append(row)
            shelf.save(e, rows, progress, data.fingerprint)
            return "test_accuracy" in row

        for _ in range(WARM_UP):
            play()
        numbers = range(WARM_UP + 1, WARM_UP + rounds + 1)
        clock, evaluated, seconds = Clock(_wait if on == "cuda" else None), 0, []
        started = time.perf_counter()
        with listening(clock):
            for _ in numbers:
                evaluated += play()
                seconds.append(clock.read())
        whole = time.perf_counter() - started
        if trace is not None:
            _trace(play, on, Path(trace))
    samples = sum(int(method.context.sizes[sampled_clients(e, number)].sum()) for number in numbers) * e.local_epochs
    table = pd.DataFrame(seconds, index=pd.Index(numbers, name="round"), columns=list(PARTS))
    return Profile(experiment, on, chosen, table, whole, samples, evaluated)


def _named(path: object) -> object:
    return str(path) if isinstance(path, Path) else path


def _writable(path: Path | str) -> bool:
    """Whether a file in a folder that exists can have this name; os.path, to which no name is an error."""
    if not isinstance(path, Path | str) or not 0 < len(os.path.basename(path)) < 250 or os.path.isdir(path):
        return False
    return os.path.isdir(os.path.dirname(path) or ".")


class CallingThread(Executor):
    """Does the work in the thread that asks for the results, when it asks: client after client."""

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        return map(fn, *iterables)


class Clock:
    """Listens to parts and adds up what each takes: a moment belongs to the innermost part that is open.

    An evaluation is one part with all that is within. wait: called at every border, before the clock is read.
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
        """Credit the part that is open with the time since the last border."""
        if self.wait is not None:
            self.wait()
        now = time.perf_counter()
        self.seconds[self.open[-1]] += now - self.last
        self.last = now

    def read(self) -> dict[Part, float]:
        """Seconds per part since the clock was read last."""
        self.turn()
        taken, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return taken


class Ranges:
    """Listens to parts and shows them to torch's profiler."""

    def __init__(self) -> None:
        self.open: list[record_function] = []

    def enter(self, name: Part) -> None:
        self.open.append(record_function(name))
        self.open[-1].__enter__()

    def leave(self) -> None:
        self.open.pop().__exit__(None, None, None)


def _trace(play: Callable[[], object], device: str, path: Path) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes when it starts and stops
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with torch_profile(activities=activities) as profiler, listening(Ranges()):
        play()
    profiler.export_chrome_trace(str(path))


def _wait() -> None:
    if not torch.cuda.is_current_stream_capturing():  # a graph that is being recorded must not be waited for
        torch.cuda.synchronize()


def described(words: Sequence[str]) -> Experiment:
    """The experiment that words describe: ``field=value``, with values in JSON or plain text.

    The first word may be a run instead, which further words change: its digest in the store, its folder, or the file
    ``experiment.json``. Raises ValueError, in one sentence that names the word.
    """
    values: dict[str, Any] = {}
    for position, word in enumerate(words):
        if "=" in word:
            name, value = field_and_value(word)
            values[name] = value
        elif position == 0:
            values = _of_run(word)
        else:
            raise ValueError(f"{shown(word)} is not of the form field=value; only the first word may name a run")
    return Experiment(**values)


def _of_run(word: str) -> dict[str, Any]:
    shelf = at()
    places = [Path(word), Path(word) / "experiment.json", shelf.path / word / "experiment.json"]
    path = next((place for place in places if os.path.isfile(place)), None)
    if path is None:
        where = f"nor the file or folder of a run, nor a digest in {shelf.place}"
        raise ValueError(f"{shown(word)} is neither field=value, {where}")
    return fields_in(path.read_bytes(), one_line(path))
