"""A run in a process of its own. It can be killed at any moment; only the round in progress is lost."""

import signal
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from filelock import Timeout

from paperlib.experiment import Experiment
from paperlib.runs import own_methods
from paperlib.runs.executors import end_with_parent
from paperlib.runs.runner import run
from paperlib.runs.store import Store


class BackgroundRun:
    """Runs an experiment in another process. The store shows its progress.

    The process ends when its parent ends, even if the parent is killed. A restarted run resumes where it stopped and
    gives the same bits as an undisturbed run. Raises ValueError for a method of one's own that cannot be sent to it.
    """

    def __init__(self, experiment: Experiment, store: Store, device: str = "auto"):
        spawn = get_context("spawn")
        self._errors, sender = spawn.Pipe(duplex=False)
        arguments = (experiment, store.path, device, sender, own_methods.pack([experiment]))
        self._process = spawn.Process(target=_play, args=arguments, daemon=True, name=f"run {experiment.digest}")
        self._process.start()
        sender.close()  # this side's copy
        self._message = ""
        _started[store.path.absolute(), experiment.digest] = self

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def error(self) -> str:
        """Why the process stopped before the run was complete, in one sentence; otherwise empty."""
        with suppress(EOFError, OSError):  # the process was killed before it could send a message
            if not self.alive and self._errors.poll():
                self._message = self._errors.recv()
        code = self._process.exitcode
        return self._message or (f"the process of the run ended with code {code}" if code else "")

    def stop(self) -> None:
        """End the process now; only the round in progress is lost."""
        self._process.terminate()
        self._process.join()


_started: dict[tuple[Path, str], BackgroundRun] = {}


def started(experiment: Experiment, store: Store) -> BackgroundRun | None:
    """The live child process of this one that runs the experiment; None if there is none."""
    child = _started.get((store.path.absolute(), experiment.digest))
    return child if child is not None and child.alive else None


def worked_on(experiment: Experiment, store: Store) -> bool:
    """Return True if a process holds the lock of the run. The system releases the lock when the process dies."""
    if not store.folder(experiment).exists():
        return False
    try:
        with store.lock(experiment).acquire(timeout=0):
            return False
    except Timeout:
        return True


def _play(experiment: Experiment, store: Path, device: str, errors: Connection, methods: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupting a notebook cell must not stop the run
    end_with_parent()
    try:
        own_methods.register(methods)
        run(experiment, store=store, device=device)
    except Exception as error:
        errors.send(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
