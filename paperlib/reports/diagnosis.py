"""Diagnose a run that diverges from its history and description, and name the change that mends it.

The causes are known failures. Each has a page in docs/failures: how it looks, why it happens, and a run that shows it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf, log

import numpy as np

from paperlib.data.datasets import training_labels
from paperlib.experiment import Experiment
from paperlib.federated.method import FedAvg
from paperlib.methods import build
from paperlib.methods.delta_sgd import DeltaSGD
from paperlib.methods.fedacg import FedACG
from paperlib.methods.fedadam import FedAdam
from paperlib.methods.fedavgm import FedAvgM
from paperlib.methods.feddyn import FedDyn
from paperlib.methods.fednova import FedNova
from paperlib.methods.fedspeed import FedSpeed
from paperlib.methods.scaffold import Scaffold
from paperlib.oneshot import is_one_shot
from paperlib.runs.prepare import divided
from paperlib.runs.store import Run

LAST = 10  # evaluations at the end, whose mean is a run's accuracy
FALL = 10.0  # points between the best accuracy and that of the end
FEW = 3  # local steps that a client should take at least
FAR = 20.0  # times the way of a gradient, which both momenta together should not go
CLIP = 1.0  # norm of a gradient, beyond which it is clipped where single ones do harm
LONG = 0.5  # lr times the clients' gain, from which on a step overshoots on any network here
MOMENTUM = {FedAvgM: "beta", FedACG: "lambda_"}  # the server's, and its option


@dataclass(frozen=True)
class Facts:
    """Facts that follow from a description alone.

    gain: how many times as far as plain SGD a client goes along a constant gradient; server_gain: likewise the server
    along a constant mean update. steps: fewest and most local steps of a client in a round. single: clients with one
    class. short: clients that take less than `FEW` steps.
    """

    experiment: Experiment
    method: FedAvg
    gain: float
    server_gain: float
    steps: tuple[int, int]
    single: int
    short: int


@dataclass(frozen=True)
class Failure:
    """A known failure. page: its name in docs/failures. fits: whether a run is exposed to it. mend: what to run."""

    page: str
    why: str
    fits: Callable[[Facts], bool]
    mend: Callable[[Experiment], Experiment]


@dataclass(frozen=True)
class Diagnosis:
    """Sentences about a run. symptoms: what its history shows; none of one that does well. facts: of its setting.

    failure: the known one that it is exposed to; mended: the run to try.
    """

    experiment: Experiment
    symptoms: tuple[str, ...]
    facts: tuple[str, ...] = ()
    failure: Failure | None = None
    mended: Experiment | None = None

    def __str__(self) -> str:
        if not self.symptoms:
            return f"{self.experiment}\nIts history shows no divergence."
        lines = [str(self.experiment), *self.symptoms, *self.facts]
        if self.failure is None or self.mended is None:
            return "\n".join(
                [*lines, "No known failure fits. Compare with FedAvg in this setting, and with a third of lr."]
            )
        change = changes(self.experiment, self.mended)
        return "\n".join([*lines, self.failure.why, f"Try {change}. See docs/failures/{self.failure.page}.md."])


def diagnose(run: Run) -> Diagnosis:
    """Find out why a run of many rounds diverges. Raises ValueError for one of a one-shot method."""
    e = run.experiment
    if is_one_shot(e):
        raise ValueError(f"{e} cannot be diagnosed: {e.method} is a one-shot method, whose clients train once")
    signs = symptoms(run)
    if not signs:
        return Diagnosis(e, signs)
    facts = facts_of(e)
    failure = next((failure for failure in FAILURES if failure.fits(facts)), None)
    return Diagnosis(e, signs, sentences(facts), failure, failure.mend(e) if failure else None)


def symptoms(run: Run) -> tuple[str, ...]:
    """Describe the signs of divergence in the history of a run, a sentence each."""
    history, nothing = run.history, log(run.summary["classes"])
    known = history[np.isfinite(history.test_loss)]
    lines = []
    if run.summary["failed"]:
        where = run.summary.get("failed_where") or "at a place that its version did not record"
        lines.append(f"Its first NaN or infinity arose in round {run.summary['failed_at']}, {where}.")
    if not len(known):
        return tuple(lines)
    end, late = known.tail(LAST), known.iloc[len(known) // 2 :]
    worst, best = late.loc[late.test_loss.idxmax()], known.loc[known.test_accuracy.idxmax()]
    knows_nothing = f"ln C = {nothing:.2f}, the loss of a model that knows nothing"
    if (mean := end.test_loss.mean()) >= nothing:
        lines.append(f"The test loss of its last {len(end)} evaluations is {mean:.2f}, not below {knows_nothing}.")
    elif worst.test_loss > nothing:
        lines.append(
            f"In round {worst['round']:.0f} its test loss jumps to {worst.test_loss:.2f}, above {knows_nothing}."
        )
    if best.test_accuracy - (last := end.test_accuracy.mean()) >= FALL:
        lines.append(
            f"Its accuracy is {best.test_accuracy:.1f} % in round {best['round']:.0f}, and {last:.1f} % at the end."
        )
    return tuple(lines)


def facts_of(e: Experiment) -> Facts:
    """Compute the facts on the clients and the steps of a run of many rounds."""
    method = build(e.method, e.method_options)
    parts = divided(e, *training_labels(e.dataset, e.train_size))
    seen = [e.epoch_sizes(round(len(part) * e.sample_share)) for part in parts]
    steps = [sum(-(-n // e.batch_size) for n in of_epochs) for of_epochs in seen]
    server = max(
        (getattr(method, option) for kind, option in MOMENTUM.items() if isinstance(method, kind)), default=0.0
    )
    single = sum(len(parts.labels[part].unique()) == 1 for part in parts)
    gains = 1 / (1 - e.momentum), 1 / (1 - server)
    return Facts(e, method, *gains, (min(steps), max(steps)), single, sum(n < FEW for n in steps))


def sentences(facts: Facts) -> tuple[str, ...]:
    """Describe the settings that influence divergence, a sentence each."""
    e, fewest, most = facts.experiment, *facts.steps
    together = facts.gain * facts.server_gain
    lines = [
        f"A client takes {fewest} to {most} steps of lr {e.lr:g} in a round; along a constant gradient momentum makes "
        f"each {facts.gain:.3g} times as long."
    ]
    if facts.server_gain > 1:
        lines.append(f"The server's momentum makes that {together:.3g} times.")
    if facts.single or facts.short:
        lines.append(
            f"Of {e.clients} clients {facts.single} have a single class, and {facts.short} take less than {FEW} steps; "
            f"{e.sampled} of them are averaged."
        )
    return tuple(lines)


def changes(before: Experiment, after: Experiment) -> str:
    """``beta = 0.5, clip = 10.0``: what the second has otherwise than the first."""
    options = {name: v for name, v in after.method_options.items() if before.method_options.get(name) != v}
    others = (f.name for f in fields(after) if f.name != "method_options")
    values = {name: getattr(after, name) for name in others if getattr(after, name) != getattr(before, name)}
    return ", ".join(f"{name} = {json.dumps(value)}" for name, value in (options | values).items())


def _options(**options: object) -> Callable[[Experiment], Experiment]:
    """The same run with some options of its method changed."""
    return lambda e: e.replace(method_options={**e.method_options, **options})


def _unclipped(kind: type[FedAvg]) -> Callable[[Facts], bool]:
    """Match runs whose method is, or wraps, ``kind`` and whose gradients may be long."""
    return lambda facts: isinstance(facts.method, kind) and (facts.experiment.clip or inf) > CLIP


def _is(kind: type[FedAvg], option: str, value: object) -> Callable[[Facts], bool]:
    """Match runs whose method is, or wraps, ``kind`` with this option value."""
    return lambda facts: isinstance(facts.method, kind) and getattr(facts.method, option) == value


# The first that fits is told.
FAILURES = (
    Failure(
        "fedavgm",
        "FedAvgM: the momenta of clients and server multiply, and the server runs past what the clients asked for.",
        lambda facts: isinstance(facts.method, FedAvgM) and facts.gain * facts.server_gain >= FAR,
        _options(beta=0.5),
    ),
    Failure(
        "fedacg",
        "FedACG: clients start ahead along the server's momentum, which their own momentum has made ten times as long.",
        lambda facts: isinstance(facts.method, FedACG) and facts.gain * facts.server_gain >= FAR,
        _options(lambda_=0.5),
    ),
    Failure(
        "fedadam",
        "FedAdam: the server moves every parameter by up to eta_g in a round, however small the clients' update of it.",
        lambda facts: isinstance(facts.method, FedAdam) and facts.method.eta_g > 0.03,
        _options(eta_g=0.01),
    ),
    Failure(
        "fedspeed",
        "FedSpeed: every sampled model is moved by lambda times its client's correction, and the mean of a few such is "
        "far from that of all.",
        _is(FedSpeed, "correction", "sampled"),
        _options(correction="all"),
    ),
    Failure(
        "scaffold",
        "SCAFFOLD: the control variate of a client that takes few steps is a noisy gradient or two, which others then "
        "add to each of their steps.",
        _unclipped(Scaffold),
        lambda e: e.replace(clip=CLIP),
    ),
    Failure(
        "fednova",
        "FedNova: the update of a client of few steps is magnified to the length of the others', and one long gradient "
        "becomes the step of a round.",
        _unclipped(FedNova),
        lambda e: e.replace(clip=CLIP),
    ),
    Failure(
        "feddyn",
        "FedDyn: h sums up the sampled clients' updates N / S^2 times too fast, and the server runs after it.",
        _is(FedDyn, "h_scale", "1/S^2"),
        _options(h_scale="1/N"),
    ),
    Failure(
        "delta_sgd",
        "Delta-SGD: gradients of two batches differ by noise, from which no learning rate follows.",
        _is(DeltaSGD, "same_batch", False),
        _options(same_batch=True),
    ),
    Failure(
        "learning_rate",
        "The step itself is too long: lr times the gain of momentum.",
        lambda facts: facts.experiment.lr * facts.gain >= LONG and not isinstance(facts.method, DeltaSGD),
        lambda e: e.replace(lr=e.lr / 10),
    ),
)  # fmt: skip
