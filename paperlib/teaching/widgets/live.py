"""A real run, started, paused and resumed from the notebook, and watched while it goes on."""

import asyncio
import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.federated.progress import Row
from paperlib.federated.simulator import sampled_clients
from paperlib.files import DamagedFile, read_tensors
from paperlib.methods import FedAvg
from paperlib.oneshot import OneShot, is_one_shot
from paperlib.runs.background import BackgroundRun, started, worked_on
from paperlib.runs.prepare import dataset_of, history_rows, prepare, prepare_one_shot
from paperlib.runs.profile import described
from paperlib.runs.records import evaluated, read_state
from paperlib.runs.store import Store
from paperlib.teaching.widgets.explorer import Explorer, View, control

SMALL = Experiment(
    dataset="digits", model="mlp", width=0.25, partition="dirichlet", alpha=0.1, clients=20, sampled=5, rounds=200,
    lr=0.05, batch_size=20,
)  # fmt: skip
EVERY = 1.0  # seconds between two looks at the store
PROBES = 100  # samples of a client on which the global model is tried


def live_run(experiment: Experiment | None = None, store: Path | str | None = None) -> Explorer:
    """Start, pause, resume and stop a real run, and watch it.

    experiment: what to run (default: a small one on digits); it can be changed in the text field. store: folder of the
    runs (default: see `paperlib.paths.runs`). The run goes on in a process of its own, into the store. To pause is to
    end that process, which also happens when the kernel ends; to resume is to start it again, with the same bits as an
    undisturbed run. Whoever opens the same experiment again sees how far it is. Nothing is ever discarded.
    """
    return LiveRun(experiment or SMALL, Store(store))


class Round(NamedTuple):
    """One round: its clients, their labels [clients, C], and the global model's accuracy on each of them."""

    number: int
    clients: list[int]
    labels: Tensor
    accuracies: list[float] | None


class Scene:
    """The fixed parts of a run, to look at its rounds with: the data, the clients' samples, the network."""

    def __init__(self, experiment: Experiment):
        self.experiment = e = experiment
        self.data: Dataset = dataset_of(e)
        self.method: FedAvg | OneShot = (prepare_one_shot if is_one_shot(e) else prepare)(e, self.data)[0]

    def round(self, number: int, store: Store) -> Round:
        """The newest round of which the store has the model, or if it has none, round ``number``.

        The model is tried on samples that each client has: `PROBES` of them, evenly spaced.
        """
        model, accuracies, e, context = saved_model(self.experiment, store), None, self.experiment, self.method.context
        if model is not None:
            number = model[0]
        clients = list(range(e.clients)) if is_one_shot(e) else sampled_clients(e, number)
        if model is not None:
            _, theta, buffers, server = model
            theta = theta if server is None else self.method.finish(theta, server)
            accuracies = [self.accuracy(theta, buffers, context.indices[client]) for client in clients]
        return Round(number, clients, context.counts[clients], accuracies)

    def accuracy(self, theta: Tensor, buffers: Tensor, indices: Tensor) -> float:
        """In percent, of a model on some of a client's samples."""
        probes = indices[torch.linspace(0, len(indices) - 1, min(PROBES, len(indices))).long()]
        x, y = normalise(self.data.train_images[probes], self.data), self.data.train_labels[probes]
        with torch.inference_mode():
            logits = self.method.net(theta, x, buffers=buffers)
        return 100 * float((logits.argmax(1) == y).double().mean())


def look(experiment: Experiment, store: Store, scene: Scene | None = None) -> tuple[Scene, Round]:
    """The scene of an experiment, unless this is it already, and the newest round in it; before the first, that one.

    Raises ValueError for data that are not at hand.
    """
    if scene is None or scene.experiment != experiment:
        scene = Scene(experiment)
    return scene, scene.round(1, store)


def saved_model(experiment: Experiment, store: Store) -> tuple[int, Tensor, Tensor, dict[str, Tensor] | None] | None:
    """Round, theta [P], buffers [Q] and server state of the newest saved model; the state is None in a finished run.

    None where there is no model, or where it is replaced at this very moment.
    """
    run = store.finished(experiment)
    if run is not None and run.folder is not None:
        return len(store.rows(experiment)), run.parameters, run.buffers, None
    folder = store.folder(experiment)
    try:
        state = read_state(folder)
        tensors = read_tensors(folder / f"checkpoint-{state['round']}.safetensors", state["sha256"], "cpu")
    except DamagedFile:
        return None
    server = {name.removeprefix("server/"): value for name, value in tensors.items() if name.startswith("server/")}
    return state["round"], tensors["theta"], tensors["buffers"], server


def words_of(experiment: Experiment) -> str:
    """The text that `paperlib.runs.profile.described` reads, as it is typed after ``paperlib profile``."""
    words = (
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in experiment.changed().items()
    )
    return " ".join(map(shlex.quote, words))


class LiveRun(Explorer):
    """See `live_run`.

    A run is in one of the states "new", "running", "elsewhere" (another process works on it), "paused", "finished". It
    is looked at again every second while it runs; what costs time is worked out beside the kernel's own work.
    """

    def __init__(self, experiment: Experiment, store: Store):
        self.experiment, self.store = experiment, store
        self.child: BackgroundRun | None = started(experiment, store)  # where the cell of a notebook is run once more
        self.error = ""
        self.paused = False  # by its button, and neither stopped nor resumed since
        self.scene: Scene | None = None
        self.round: Round | None = None
        self._look_task: asyncio.Task[None] | None = None
        self.text = control(widgets.Text, "Experiment", words_of(experiment), "64em", "6em", continuous_update=False)
        self.bar = control(widgets.IntProgress, "Rounds", 0, "30em", min=0, max=history_rows(experiment))
        self.bar.style.bar_color = "#0173b2"
        self.buttons = {}
        for name, icon, act, tooltip in (
            ("Start", "play", self.go, "Start the run in a process of its own"),
            ("Pause", "pause", self.pause, "End the process; the store keeps all rounds that are done"),
            ("Resume", "play", self.go, "Go on where the run ended, with the same bits"),
            ("Stop", "stop", self.stop, "End the process and choose another experiment; nothing is discarded"),
        ):
            button = widgets.Button(description=name, icon=icon, tooltip=tooltip, layout={"width": "7em"})
            button.on_click(lambda _, act=act: self.call(act))
            self.buttons[name] = button
        try:
            self.scene, self.round = look(experiment, store)
        except ValueError as error:  # a data set that is not at hand
            self.error = str(error)
        super().__init__([[self.text], [*self.buttons.values(), widgets.Box([self.bar])]], self.show)
        self._watch()

    # -- what the buttons do

    def go(self) -> None:
        """Start or resume."""
        with suppress(ValueError):  # which refresh tells
            self._choose()
            if self.state in ("new", "paused"):
                self.error, self.paused = "", False
                self.child = BackgroundRun(self.experiment, self.store)
                self._watch()
        self.refresh()

    def pause(self) -> None:
        """End the process, to be resumed."""
        self.stop(paused=True)

    def stop(self, paused: bool = False) -> None:
        """End the process; another experiment may be typed in."""
        if self.child is not None:
            self.child.stop()
            self.child = None
        self.paused = paused
        self.refresh()

    # -- what is seen

    @property
    def state(self) -> str:
        if self.store.finished(self.experiment) is not None:  # its process may take long to end
            return "finished"
        if self.child is not None and self.child.alive:
            return "running"
        if worked_on(self.experiment, self.store):
            return "elsewhere"
        return "paused" if self.store.rounds_done(self.experiment) else "new"

    def show(self) -> View:
        """The run as it stands in the store; buttons and words follow from it."""
        self._choose()
        if self.child is not None and not self.child.alive:
            self.error, self.child = self.child.error, None
        e, state, rows = self.experiment, self.state, self.store.rows(self.experiment)
        self.bar.max, self.bar.value = history_rows(e), len(rows)
        self.bar.description = "Epochs" if is_one_shot(e) else "Rounds"
        enabled = {"Start": state == "new", "Pause": state == "running", "Resume": state == "paused"}
        enabled["Stop"] = enabled["Pause"] or (enabled["Resume"] and self.paused)
        for name, button in self.buttons.items():
            button.disabled = not enabled[name]
        self.text.disabled = enabled["Stop"]
        return View(self._words(state, rows), self._picture(rows))

    def _words(self, state: str, rows: list[Row]) -> str:
        e = self.experiment
        unit, beginning = "rounds", "round 1 is under way"
        if is_one_shot(e):
            unit, beginning = "epochs on the server", "the clients train"
        if state == "running" and not rows and not worked_on(e, self.store):
            beginning = "its process starts, which takes some seconds"
        progress = f"{len(rows)} of {history_rows(e)} {unit}"
        state_in_words = {
            "new": f"not started, {history_rows(e)} {unit} to go",
            "running": f"running, {progress} done" if rows else f"running, {beginning}",
            "elsewhere": f"another process works on it, {progress} done",
            "paused": f"{'paused' if self.paused else 'interrupted'} after {progress}; Resume goes on from there",
            "finished": f"finished after {progress}",
        }[state]
        history = evaluated(rows)
        scores = history.test_accuracy.dropna()
        result = f" Test accuracy {scores.iloc[-1]:.2f} %, at best {scores.max():.2f} %." if len(scores) else ""
        run = self.store.finished(e) if state == "finished" else None
        if run is not None and run.summary["failed"]:
            result += f" It failed: NaN or infinity in round {run.summary['failed_at']}, {run.summary['failed_where']}."
        if self.error:
            result += f" It ended with an error: {self.error.rstrip('.')}."
        return f"{e}: {state_in_words}.{result}"

    def _picture(self, rows: list[Row]) -> Figure:
        """Accuracy, loss, the global model on each client of the round, their labels."""
        history = evaluated(rows)
        with plots.style():
            figure = Figure(figsize=(10.8, 2.5))  # its layout is fixed: to work one out takes as long as to draw
            accuracy, loss, by_client, labels = figure.subplots(1, 4)
            figure.subplots_adjust(left=0.035, right=0.995, bottom=0.18, top=0.9, wspace=0.2)
            for ax, column, title in (
                (accuracy, "test_accuracy", "test accuracy (%)"), (loss, "test_loss", "test loss (nats)")
            ):  # fmt: skip
                ax.plot(history["round"], history[column], ".-", color=plots.COLOURS[0], linewidth=1.2, markersize=3)
                unit = "epoch on the server" if is_one_shot(self.experiment) else "round"
                ax.set(xlabel=unit, title=title, xlim=(0, history_rows(self.experiment) + 0.5))
            accuracy.set_ylim(0, 100)
            self._draw_clients(by_client, labels)
        return figure

    def _draw_clients(self, accuracy: Any, labels: Any) -> None:
        round = self.round
        accuracy.set(title="model on each client's data (%)", xlabel="client", ylim=(0, 100))
        labels.set(title="their labels (samples)", xlabel="class")
        for ax in (accuracy, labels):
            ax.grid(axis="x", visible=False)
        if round is None:
            return
        places = np.arange(len(round.clients))
        few = len(places) <= len(plots.COLOURS)  # so that each has a colour of its own
        if round.accuracies is not None:
            accuracy.bar(places, round.accuracies, color=plots.COLOURS if few else plots.COLOURS[0])
        step = -(-len(places) // 10)
        accuracy.set_xticks(places[::step], [str(client) for client in round.clients[::step]])
        whose = "client" if is_one_shot(self.experiment) else f"client of round {round.number}"
        accuracy.set(xlabel=whose, xlim=(-0.6, len(places) - 0.4))
        counts = round.labels.cpu().numpy()
        layers = counts if few else counts.sum(0, keepdims=True)
        look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.5}
        for layer, top, colour in zip(layers, layers.cumsum(0), plots.COLOURS, strict=False):
            labels.bar(np.arange(counts.shape[1]), layer, 0.85, bottom=top - layer, color=colour, **look)
        labels.xaxis.set_major_locator(MaxNLocator(integer=True))

    # -- looking at the store

    def _choose(self) -> None:
        """Take the experiment from the text field. Raises ValueError for what is none."""
        if self.text.disabled or self.text.value == words_of(self.experiment):
            return
        try:
            words = shlex.split(self.text.value)
        except ValueError as error:
            raise ValueError(f"{self.text.value!r} cannot be taken apart into words: {error}") from None
        experiment = described(words)
        if experiment != self.experiment:
            self.experiment, self.scene, self.round, self.error = experiment, None, None, ""
            self.child = started(experiment, self.store)
            self._watch()

    def _watch(self) -> None:
        """Look again, and again as long as a process works on the run; without a kernel nobody waits for that."""
        if self.loop is not None and (self._look_task is None or self._look_task.done()):
            self._look_task = self.loop.create_task(self._looking())

    def _progress(self, experiment: Experiment) -> tuple[int, bool]:
        """Return the rounds that are done, and True once the process has begun with them; a change of these is told."""
        rounds = self.store.rounds_done(experiment)
        return rounds, rounds > 0 or worked_on(experiment, self.store)

    async def _looking(self) -> None:
        going = True
        while going:
            e, before = self.experiment, self._progress(self.experiment)
            try:
                scene, round = await asyncio.to_thread(look, e, self.store, self.scene)
            except ValueError as error:  # a data set that is not at hand
                if e == self.experiment:
                    self.error = str(error)
            else:
                if e == self.experiment:
                    self.scene, self.round = scene, round
            if e != self.experiment:
                continue
            going = self.state in ("running", "elsewhere")  # asked first: what ends in between is looked at once more
            self.refresh()
            while going and e == self.experiment and self._progress(e) == before:
                await asyncio.sleep(EVERY)
                if self.state not in ("running", "elsewhere"):
                    break
