"""The scales, which turn a setting of a paper into one that can be run.

``smoke`` shows in seconds that everything runs. ``paper`` is exactly as printed. ``mini``, ``small`` and every number
of operations are budgets: the setting nearest to print that fits (`paperlib.papers.budget`). ``mini`` fits every
setting: where its budget is too small, it takes the smallest run there is.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from paperlib import oneshot
from paperlib.checks import quote
from paperlib.data.datasets import DATASETS, available, sides
from paperlib.experiment import Experiment
from paperlib.oneshot import is_one_shot
from paperlib.papers import budget
from paperlib.papers.budget import one_shot_setting
from paperlib.runs import cost

Scale = str | float

BUDGETS = {"mini": 3e12, "small": 3e13}  # operations of FedAvg's run: about one minute, and about eight, of one core
MOST = 1e300  # operations: the largest budget, larger than any run
NEAREST = "the setting nearest to print in which FedAvg's run costs at most {} operations"
KEPT = "Local steps, participation, skew, rates and the kind of network are those of print."
RULES = {
    "smoke": (
        "digits (8x8, enlarged to 28x28) for every data set, an eighth-width CNN (MLP: quarter width) for every "
        "network, 20 clients, 15 rounds, a third of the local epochs. It shows that everything runs, no more."
    ),
    "mini": f"{NEAREST.format(budget.spelled(BUDGETS['mini']))}, or the smallest run there is. {KEPT}",
    "small": f"{NEAREST.format(budget.spelled(BUDGETS['small']))}. {KEPT}",
    "paper": "exactly as printed.",
}
# For the setting of the one-shot methods, including FedAvg.
SMOKE_ONE_SHOT = (
    "digits (8x8, enlarged to 28x28) for every data set, at most 5 clients with batches of 32, one local epoch for 40, "
    "an eighth of the width of the small CNNs, which also replace GoogLeNet and ResNet-18; on the server 4 epochs of 3 "
    "generator steps, batches of 32, a generator of a sixteenth of its width. It shows that everything runs, no more."
)
SMOKE_SERVER = {"distill_epochs": 4, "generator_steps": 3, "batch": 32, "generator_width": 0.0625}
SMOKE_NETWORKS = {"googlenet": "cnn2", "resnet18": "cnn3"}
# First stage after the cut, in a ResNet and in the CNN: after convolution 5, 13 and 17.
CUTS = {2: 1, 4: 2, 5: 3}
# A budget replaces a missing data set; scale paper replaces nothing.
STAND_INS = {
    "svhn": "fmnist",
    "emnist_byclass": "emnist_letters",
    "femnist": "emnist_letters",
    "tinyimagenet": "cifar100",
}


def at_scale(experiment: Experiment, scale: Scale) -> Experiment:
    """A paper's experiment reduced to a scale or a budget of operations.

    Raises ValueError for an unknown scale and for a budget that is too small.
    """
    name = scale_name(scale)
    if name == "paper":
        return experiment
    if name == "smoke":
        return smoke_one_shot(experiment) if one_shot_setting(experiment) else smoke(experiment)
    operations = BUDGETS[name] if name in BUDGETS else float(name)
    return budget.within(with_stand_in(experiment), operations, or_least=name == "mini")


def all_at_scale(experiments: Iterable[Experiment], scale: Scale) -> dict[Experiment, Experiment]:
    """Experiment -> the one that is run at a scale; all seeds of a setting are reduced at once.

    Raises ValueError as `at_scale`.
    """
    settings: dict[Experiment, Experiment] = {}
    reduced = {}
    for e in dict.fromkeys(experiments):
        of_setting = e.replace(seed=0, partition_seed=0)
        if of_setting not in settings:
            settings[of_setting] = at_scale(of_setting, scale)
        reduced[e] = settings[of_setting].replace(seed=e.seed, partition_seed=e.partition_seed)
    return reduced


def smoke(e: Experiment) -> Experiment:
    """A multi-round experiment reduced to seconds."""
    mlp = e.model == "mlp"
    network: dict[str, Any] = {"model": "mlp", "width": 0.25} if mlp else {"model": "cnn", "width": 0.125}
    rounds, epochs = 15, -(-e.local_epochs // 3)
    clients = 1 if e.clients == 1 else 20
    options = dict(e.method_options)
    if e.method == "fedimpro":  # the cut moves to the CNN's corresponding stage, the ramp to the same part of the run
        if network["model"] != e.model and options.get("cut") is not None:
            options["cut"] = CUTS[options["cut"]]
        options["ramp"] = options.get("ramp", 500) * rounds * epochs / (e.rounds * e.local_epochs)
    return e.replace(
        dataset="digits", rounds=rounds, local_epochs=epochs, method_options=options, partition=without_writers(e),
        clients=clients, sampled=min(e.sampled, clients), min_samples=1, **network,
    )  # fmt: skip


def smoke_one_shot(e: Experiment) -> Experiment:
    """An experiment in the one-shot setting, reduced to seconds."""
    options = dict(e.method_options)
    if is_one_shot(e):
        now = vars(oneshot.build(e.method, options))
        options |= {name: min(now[name], most) for name, most in SMOKE_SERVER.items() if name in now}
    clients = min(e.clients, 5)
    return e.replace(
        dataset="digits", model="cnn2", client_models=tuple(SMOKE_NETWORKS.get(name, name) for name in e.client_models),
        width=0.125, clients=clients, sampled=clients, local_epochs=-(-e.local_epochs // 40), batch_size=32,
        augment=False, method_options=options,
    )  # fmt: skip


def with_stand_in(e: Experiment) -> Experiment:
    """The experiment with a stand-in if its own data set is missing at every image size.

    The stand-in has no writers, and may be too small to give every client the printed minimum.
    """
    other = stand_in(e.dataset)
    return e if other == e.dataset else e.replace(dataset=other, partition=without_writers(e), min_samples=1)


def without_writers(e: Experiment) -> str:
    """The partition on a stand-in data set, which has no writers."""
    return "iid" if e.partition == "natural" else e.partition


def stand_in(dataset: str) -> str:
    """The data set used for ``dataset`` within a budget."""
    sizes = sides(DATASETS[dataset].size) if dataset in DATASETS else (None,)
    here = any(available(dataset, image_size=size) for size in sizes)
    return dataset if here else STAND_INS.get(dataset, dataset)


def scale_name(scale: Any, *also: str) -> str:
    """The name of a scale in results and folders: "smoke", or a budget such as "1e14".

    Raises ValueError for anything but a known name, or one of ``also``, or a number of operations above 0.
    """
    names = (*also, *RULES)
    if isinstance(scale, str) and scale in names:
        return scale
    try:
        operations = 0.0 if isinstance(scale, bool) else float(scale)
    except (TypeError, ValueError, OverflowError):
        operations = 0.0
    if not 0 < operations <= MOST:
        raise ValueError(
            f"unknown scale {quote(scale)}; choose one of {', '.join(names)}, or a number of operations above 0"
        )
    return budget.spelled(operations)


def chosen(budget: str, experiments: Sequence[Experiment], jobs: int = 1) -> str:
    """The scale for ``--budget``: operations per run, or a time for all experiments such as "90min" or "2h".

    experiments: at the paper's scale. A time is converted with the measured speed of this machine to 1, 2 or 5 times a
    power of ten: the largest budget that fits, or the smallest that gives the same runs. The same number then asks for
    the same runs again. Raises ValueError for anything else, and for a time in which no budget fits.
    """
    duration = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(s|min|h|d)", budget.strip())
    if duration is None:
        try:
            return scale_name(float(budget))
        except ValueError:
            raise ValueError(
                f"budget is {quote(budget)}, but must be a number of operations above 0, such as 1e14, or a time such "
                "as 90min or 2h"
            ) from None
    seconds = float(duration[1]) * {"s": 1, "min": 60, "h": 3600, "d": 86400}[duration[2]]
    grid = [f"{digit}e{power}" for power in range(9, 19) for digit in (1, 2, 5)]
    took = cache(lambda name: _core_seconds(experiments, name))
    longest = bisect_right(grid, seconds * jobs, key=took) - 1
    if longest < 0 or took(grid[longest]) < 0:
        least = next(name for name in grid if took(name) >= 0)
        raise ValueError(
            f"a budget of {budget} is too short: {least} operations, the least that suffices for each of these "
            f"{len(experiments)} runs, take {cost.format_duration(took(least) / jobs)}"
        )
    return grid[bisect_left(grid, took(grid[longest]), key=took)]


def _core_seconds(experiments: Sequence[Experiment], budget: str) -> float:
    """Seconds of one core for all experiments within a budget; -1 if it is too small for one of them."""
    try:
        parts = cost.own_parts(at_scale(e, budget) for e in experiments)
        return sum(part * cost.seconds(e) for e, part in parts.items())
    except ValueError:
        return -1.0


def rules(scale: Scale, experiments: Sequence[Experiment]) -> str:
    """Explain the numbers of a scale to a reader: one line, and for a budget one more per setting.

    experiments: of a table or figure at the paper's scale.
    """
    name = scale_name(scale)
    if name in ("smoke", "paper"):
        one_shot = name == "smoke" and any(one_shot_setting(e) for e in experiments)
        text = f"Scale {name}: {SMOKE_ONE_SHOT if one_shot else RULES[name]}"
        if any(at_scale(e, name).partition != e.partition for e in experiments):
            text += " Clients that are writers become equal random parts."
        if name == "smoke" and any(e.clients == 1 for e in experiments):
            text += " Centralized training has one client that holds everything."
        return text
    text = f"Scale {name}: {RULES[name]}" if name in RULES else f"At most {name} operations of FedAvg per run."
    return "\n".join([text, *settings(name, experiments)])


def settings(scale: Scale, experiments: Sequence[Experiment]) -> list[str]:
    """Describe each setting of a grid in a line: its changes at a scale, and its share of the printed operations."""
    texts: dict[str, list[str]] = {}
    for place, e in _dearest(experiments).items():
        reduced = at_scale(e, scale)
        changes, share = ", ".join(budget.reductions(e, reduced)), percent(budget.share(e, reduced))
        text = f"{changes}; {share} of the printed operations." if changes else "as printed."
        if (spent := budget.spent(reduced)) > BUDGETS.get(scale_name(scale), MOST):
            text = f"{text[:-1]}, the smallest run there is ({budget.spelled(spent)} operations)."
        texts.setdefault(text, []).append(place)
    return [f"{'; '.join(places)}: {text}" for text, places in texts.items()]


def _dearest(experiments: Iterable[Experiment]) -> dict[str, Experiment]:
    """Setting -> an experiment that shows what a scale changes in it: of one-shot methods, one with most operations."""
    chosen: dict[str, Experiment] = {}
    for e in experiments:
        place = setting(e)
        if place not in chosen or (is_one_shot(e) and cost.operations(e) > cost.operations(chosen[place])):
            chosen[place] = e
    return chosen


def percent(part: float) -> str:
    """A share in two digits, such as "3.8 %" or "0.012 %"."""
    return f"{float(f'{100 * part:.2g}'):g} %"


def setting(e: Experiment) -> str:
    """``CIFAR-10, cnn, 5 of 200, E = 5``; E is the number of local epochs."""
    return f"{DATASETS[e.dataset].title}, {e.model}, {e.sampled} of {e.clients}, E = {e.local_epochs}"
