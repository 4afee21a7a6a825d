"""A run in a process of its own, which can be ended at any moment: the store has all but the round under way."""

import signal
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from filelock import Timeout

from paperlib.executors import end_with_parent
from paperlib.experiment import Experiment
from paperlib.runner import run
from paperlib.store import Store


class Apart:
    """Plays an experiment into the store, from another process; what it has done is read from the store.

    The process ends with the one that started it, also if that is killed. Starting again goes on where it ended, with
    the same bits as an undisturbed run. It knows the methods of this package, not those that are registered elsewhere.
    """

    def __init__(self, experiment: Experiment, store: Store, device: str = "auto"):
        spawn = get_context("spawn")
        self._mistakes, theirs = spawn.Pipe(duplex=False)
        arguments = (experiment, store.place, device, theirs)
        self._process = spawn.Process(target=_play, args=arguments, daemon=True, name=f"run {experiment.digest}")
        self._process.start()
        theirs.close()  # this side's copy
        self._said = ""
        _started[store.path.absolute(), experiment.digest] = self

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def mistake(self) -> str:
        """Why the process ended before the run did, in one sentence; empty while it goes on, and after the end."""
        with suppress(EOFError, OSError):  # where it died without a word
            if not self.alive and self._mistakes.poll():
                self._said = self._mistakes.recv()
        code = self._process.exitcode
        return self._said or (f"the process of the run ended with code {code}" if code else "")

    def stop(self) -> None:
        """End the process now; the round under way is lost, and nothing else."""
        self._process.terminate()
        self._process.join()


_started: dict[tuple[Path, str], Apart] = {}


def started(experiment: Experiment, store: Store) -> Apart | None:
    """The process that plays a run and was started from this one, if it is still at work."""
    found = _started.get((store.path.absolute(), experiment.digest))
    return found if found is not None and found.alive else None


def worked_on(experiment: Experiment, store: Store) -> bool:
    """Whether any process works on a run: its lock says so. The system lets go of the lock when the process dies."""
    if not store.folder(experiment).exists():
        return False
    try:
        with store.lock(experiment).acquire(timeout=0):
            return False
    except Timeout:
        return True


def _play(experiment: Experiment, store: Path | str, device: str, mistakes: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts a cell of a notebook does not mean the run
    end_with_parent()
    try:
        run(experiment, store=store, device=device)
    except Exception as error:
        mistakes.send(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
