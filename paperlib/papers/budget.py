"""The setting nearest to print that fits a budget.

A budget is a number of floating-point operations of one FedAvg run; other methods may cost more. The papers study
client drift, so these stay as printed: local epochs and steps, participation, the partition's concentration, the family
of the network and of its norm, and every rate. The rest is reduced in the order of `LADDER`, each only as far as
needed; docs/calibration.md has the evidence for the order.

In the one-shot setting the server costs more than the clients. There the budget is that of FedHydra's run, and
`ONE_SHOT_LADDER` begins with the server; the generator's steps per step of the student stay.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeVar

from paperlib import networks, oneshot
from paperlib.data.datasets import DATASETS, available, sides
from paperlib.experiment import Experiment
from paperlib.oneshot import is_one_shot
from paperlib.runs import cost
from paperlib.runs.operations import counted, key_of
from paperlib.runs.prepare import history_rows

TEST_IMAGES = 5_000  # kept in an evaluation
EVALUATION = 0.1  # cost of the evaluations over that of the training
EVALUATIONS = 50  # least number of evaluations, at any cost
LAST = 20  # evaluations of a shortened run, so that the last ten, which are averaged, are at most its second half
SMALLEST_BATCH = 4
SMALLEST_SIDE = 14  # pixels
# The fields that decide the operations of FedAvg's run; reductions change some of them.
SETTING = (
    "dataset", "train_size", "test_size", "image_size", "pixels", "model", "width", "clients", "sampled",
    "sample_share", "rounds", "lr_decay", "local_epochs", "batch_size", "eval_every",
)  # fmt: skip
# Option of a one-shot method's server -> what is said where it is reduced.
ON_SERVER = {
    "distill_epochs": "{r} of {p} epochs on the server", "batch": "synthetic batches of {r} for {p}",
    "generator_width": "{r:g} of the generator's width",
}  # fmt: skip
SHALLOWER = {
    "resnet18": "resnet10", "resnet18_gn": "resnet10_gn", "resnet50": "resnet14", "fedacd_resnet18": "fedacd_resnet10",
}  # fmt: skip
RESNETS = {*SHALLOWER, *SHALLOWER.values()}


class Target(NamedTuple):
    """A run to reduce: the printed reference run; with the clients' own networks, the budget and the reductions."""

    printed: Experiment
    client_models: tuple[str, ...]
    budget: float
    ladder: "tuple[Reduction, ...]"


Reduction = Callable[[Experiment, Target], Experiment]
Number = TypeVar("Number", int, float)


def within(
    printed: Experiment, budget: float, ladder: tuple[Reduction, ...] | None = None, or_least: bool = False
) -> Experiment:
    """Reduce the experiment until its FedAvg run costs at most ``budget`` operations.

    ladder: reductions in order (default: `LADDER` or `ONE_SHOT_LADDER`). or_least: where no reduction reaches the
    budget, return the smallest run there is; otherwise raise a ValueError that names its operations.
    """
    usual = ONE_SHOT_LADDER if one_shot_setting(printed) else LADDER
    target = Target(_reference(printed), printed.client_models, budget, ladder or usual)
    changes, on_server, least = _changes(target)
    if least > budget and not or_least:
        raise ValueError(
            f"a budget of {spelled(budget)} operations is too small for a run on {printed.dataset} with "
            f"{printed.model}, {printed.sampled} of {printed.clients} clients: the smallest that fits is "
            f"{spelled(least, upwards=True)}"
        )
    if not changes and not on_server:
        return printed
    length = changes.get("rounds", printed.rounds) / printed.rounds
    return printed.replace(**changes, method_options=_reduced_options(printed, length, on_server))


def _reduced_options(printed: Experiment, length: float, on_server: Mapping[str, float]) -> dict[str, Any]:
    """Method options for a share of the rounds, with reduced options of a one-shot method's server."""
    options = dict(printed.method_options)
    if is_one_shot(printed):
        own = vars(oneshot.build(printed.method, options))
        for name, part in on_server.items():
            if name in own:
                options[name] = own[name] * part if name == "generator_width" else max(1, round(own[name] * part))
    if length < 1 and printed.method == "fedimpro":  # the weight of drawn features rises over the same share
        options["ramp"] = length * options.get("ramp", 500)
    return options


def spelled(operations: float, upwards: bool = False) -> str:
    """A number of operations in three digits, such as "1.25e12"; upwards: never below the number."""
    digits, _, power = f"{operations:.2e}".partition("e")
    if upwards and float(f"{digits}e{power}") < operations:
        return spelled(operations * (1 + 0.01 / float(digits)))
    return f"{float(digits):g}e{int(power)}"


def share(printed: Experiment, reduced: Experiment) -> float:
    """Return the operations of the reduced run over the printed ones."""
    return spent(reduced) / spent(printed)


def spent(e: Experiment) -> float:
    """Return the operations of a run, counted for FedAvg or for the one-shot method."""
    return cost.operations(e if is_one_shot(e) else _fedavg(e))


def reductions(printed: Experiment, reduced: Experiment) -> list[str]:
    """The differences from print, one phrase each."""
    return [
        phrase(printed, reduced)
        for field, phrase in PHRASES.items()
        if getattr(reduced, field) != getattr(printed, field) and phrase(printed, reduced)
    ]


# Field -> phrase for its difference between the printed run p and the reduced run r.
PHRASES: dict[str, Callable[[Experiment, Experiment], str]] = {
    "dataset": lambda p, r: f"{DATASETS[r.dataset].title} for {DATASETS[p.dataset].title}",
    "partition": lambda p, r: "clients that are writers become equal random parts",
    "image_size": lambda p, r: f"images averaged to {r.image_size}x{r.image_size}",
    "model": lambda p, r: f"{r.model} for {p.model}",
    "width": lambda p, r: f"{Fraction(r.width)} of the width",
    "rounds": lambda p, r: f"{r.rounds} of {p.rounds} rounds",
    "local_epochs": lambda p, r: f"{r.local_epochs} of {p.local_epochs} local epochs",
    "method_options": lambda p, r: ", ".join(_on_server(p, r)),
    "sample_share": lambda p, r: f"{r.sample_share:.2g} of every client's samples in batches of {r.batch_size}",
    "test_size": lambda p, r: f"{r.test_size:,} test images",
    "eval_every": lambda p, r: f"evaluated every {r.eval_every} rounds",
}


def _on_server(printed: Experiment, reduced: Experiment) -> list[str]:
    """The reductions on a one-shot method's server, one phrase each."""
    if not is_one_shot(printed):
        return []
    p, r = (vars(oneshot.build(e.method, e.method_options)) for e in (printed, reduced))
    changed = {name for name in ON_SERVER if name in p and p[name] != r[name]}
    return [phrase.format(p=p[name], r=r[name]) for name, phrase in ON_SERVER.items() if name in changed]


def _reference(e: Experiment) -> Experiment:
    """The run that is budgeted, in the setting of an experiment: all methods of a column are reduced alike."""
    if one_shot_setting(e):
        return _of_method("fedhydra", client_models=e.client_models, **{name: getattr(e, name) for name in SETTING})
    return _fedavg(e)


def _fedavg(e: Experiment) -> Experiment:
    return _of_method("fedavg", **{name: getattr(e, name) for name in SETTING})


@cache
def _of_method(method: str, **setting: Any) -> Experiment:
    return Experiment(method=method, **setting)


@cache
def _changes(target: Target) -> tuple[dict[str, Any], dict[str, float], float]:
    """Return the changes by a budget (field -> value, option of the server -> factor) and the operations left."""
    printed, budget = target.printed, target.budget
    reduced = _at_hand(printed)
    for reduce in target.ladder:
        if cost.operations(reduced) <= budget:
            break
        reduced = reduce(reduced, target)
    # The last reduction may save more than needed: restore gradual reductions as far as the budget allows.
    if reduced.batch_size < printed.batch_size:
        reduced = thin(reduced.sample_share)(reduced, target)
    if reduced.rounds < printed.rounds:
        reduced = shorten(reduced.rounds / printed.rounds)(reduced, target)
    changes = {name: getattr(reduced, name) for name in SETTING if getattr(reduced, name) != getattr(printed, name)}
    whole = vars(oneshot.build("fedhydra"))
    on_server = {name: value / whole[name] for name, value in reduced.method_options.items()}
    return changes, on_server, cost.operations(reduced)


def _at_hand(e: Experiment) -> Experiment:
    """The experiment with smaller images if only these are present."""
    if available(e.dataset) or e.dataset not in DATASETS:
        return e
    present = [side for side in sides(DATASETS[e.dataset].size) if available(e.dataset, image_size=side)]
    return e.replace(image_size=present[0]) if present else e


def evaluate_less(e: Experiment, target: Target) -> Experiment:
    """Fewer test images, evaluated every k-th round, so that evaluations cost a tenth of the training."""
    _, images = cost.sizes(e)
    rows = history_rows(e)
    evaluations = cost.FORWARD * images * rows / e.eval_every
    training = cost.passes(e) - evaluations
    tested = min(images, TEST_IMAGES)
    every = -(-cost.FORWARD * tested * rows // (EVALUATION * training))
    return e.replace(
        test_size=tested if tested < images else e.test_size,
        eval_every=int(max(e.eval_every, min(every, rows // EVALUATIONS))),
    )


def halve_images(e: Experiment, target: Target) -> Experiment:
    """Images at half the side, if the networks accept them."""
    (_, side, _), _ = cost.images(e)
    half = side // 2
    if half not in sides(side) or half < SMALLEST_SIDE or (one_shot_setting(e) and half % 4):
        return e  # generators make images whose sides are multiples of 4
    halved = e.replace(image_size=half)
    return halved if _takes(halved, target) else e


def narrow(least: float) -> Reduction:
    """A narrower network, in steps of a sixteenth of its width: four channels of a layer of 64."""

    def reduce(e: Experiment, target: Target) -> Experiment:
        widths = [n / 16 for n in range(round(16 * least), int(16 * e.width) + 1)]
        # A network that exists in one width exists in every larger one, and most exist in the smallest.
        if widths and not _takes(e.replace(width=widths[0]), target):
            widths = widths[bisect_left(widths, True, key=lambda width: _takes(e.replace(width=width), target)) :]
        return _largest(widths, lambda width: e.replace(width=width), target.budget) if widths else e

    return reduce


def shallow(e: Experiment, target: Target) -> Experiment:
    """A shallower network of the same family and norm."""
    return e.replace(model=SHALLOWER.get(e.model, e.model))


def shorten(least: float) -> Reduction:
    """Fewer rounds, down to the share ``least`` of the printed ones.

    The learning rate decays faster per round and ends at the printed value.
    """

    def reduce(e: Experiment, target: Target) -> Experiment:
        printed = target.printed
        fewest = min(printed.rounds, max(LAST, round(least * printed.rounds)))

        def of_length(rounds: int) -> Experiment:
            every = max(1, min(e.eval_every, rounds // LAST))
            return e.replace(rounds=rounds, lr_decay=printed.lr_decay ** (printed.rounds / rounds), eval_every=every)

        return _largest(range(fewest, printed.rounds + 1), of_length, target.budget)

    return reduce


def train_less(least: float) -> Reduction:
    """Fewer local epochs in the one-shot setting, down to the share ``least`` of the printed ones."""

    def reduce(e: Experiment, target: Target) -> Experiment:
        epochs = range(max(1, round(least * target.printed.local_epochs)), target.printed.local_epochs + 1)
        return _largest(epochs, lambda n: e.replace(local_epochs=n), target.budget)

    return reduce


def less_on_server(option: str, least: float) -> Reduction:
    """A smaller option of a one-shot method's server, down to the share ``least`` of it."""

    def reduce(e: Experiment, target: Target) -> Experiment:
        whole = vars(oneshot.build("fedhydra"))[option]
        sizes = [whole * n / 16 for n in range(round(16 * least), 17)] if isinstance(whole, float) else None
        values = sizes or list(range(max(1, round(least * whole)), whole + 1))
        return _largest(values, lambda n: e.replace(method_options={**e.method_options, option: n}), target.budget)

    return reduce


def thin(least: float) -> Reduction:
    """A share of every client's samples in batches smaller by the same factor; the local steps stay."""

    def reduce(e: Experiment, target: Target) -> Experiment:
        size = target.printed.batch_size
        batches = range(max(SMALLEST_BATCH, round(least * size)), size + 1)
        return _largest(batches, lambda n: e.replace(batch_size=n, sample_share=n / size), target.budget)

    return reduce


def residual(reduce: Reduction) -> Reduction:
    """The reduction for ResNets alone: FedGPS's column of docs/calibration.md orders theirs differently."""
    return lambda e, target: reduce(e, target) if e.model in RESNETS else e


def one_shot_setting(e: Experiment) -> bool:
    """Return True for a run of the comparison of one-shot methods, like FedAvg's runs on pixels in [0, 1]."""
    return is_one_shot(e) or e.pixels == "unit"


def _largest(values: Sequence[Number], make: Callable[[Number], Experiment], budget: float) -> Experiment:
    """The experiment of the largest of the ascending values that fits, else of the smallest."""
    fitting = bisect_right(values, budget, key=lambda n: cost.operations(make(n)))
    return make(values[max(fitting - 1, 0)])


def _takes(e: Experiment, target: Target) -> bool:
    """Return True if all networks of an experiment accept its width and its images."""
    shape, classes = cost.images(e)
    return all(_builds(model, shape, classes, e.width) for model in {e.model, *target.client_models})


@cache
def _builds(model: str, shape: tuple[int, int, int], classes: int, width: float) -> bool:
    if key_of(model, width, shape, classes) in counted():  # building it takes a hundred times as long
        return True
    try:
        networks.build(model, shape, classes, width)
    except ValueError:
        return False
    return True


# Reductions in order; the next one is used only if those before it do not suffice.
LADDER: tuple[Reduction, ...] = (
    evaluate_less,
    halve_images,
    narrow(1 / 8),
    shorten(1 / 4),
    halve_images,
    shallow,
    shorten(1 / 6),
    residual(thin(2 / 5)),
    shorten(1 / 10),
    thin(1 / 10),
)
ONE_SHOT_LADDER: tuple[Reduction, ...] = (
    evaluate_less,
    less_on_server("distill_epochs", 60 / 200),
    less_on_server("batch", 1 / 4),
    less_on_server("generator_width", 1 / 2),
    train_less(1 / 5),
    halve_images,
    less_on_server("distill_epochs", 30 / 200),
    thin(1 / 2),
    narrow(1 / 2),
    train_less(1 / 10),
    thin(1 / 4),
    shallow,
    less_on_server("batch", 1 / 8),
    narrow(1 / 4),
    less_on_server("distill_epochs", 20 / 200),
    thin(1 / 10),
    narrow(1 / 8),
    less_on_server("distill_epochs", 5 / 200),
    train_less(1 / 40),
    less_on_server("batch", 1 / 32),
    thin(1 / 30),
)
