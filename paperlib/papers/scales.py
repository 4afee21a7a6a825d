"""The scales: rules that turn a setting of a paper into one that can be run.

Stated here and nowhere else; `rules` is shown under every table.
"""

from collections.abc import Sequence
from typing import Any

from paperlib import oneshot
from paperlib.checks import one_of
from paperlib.data.datasets import DATASETS, available
from paperlib.experiment import Experiment

RULES = {
    "smoke": (
        "digits (8x8, enlarged to 28x28) for every data set, an eighth-width CNN (MLP: quarter width) for every "
        "network, 20 clients, 15 rounds, a third of the local epochs. Shows that everything runs; the numbers mean "
        "nothing else."
    ),
    "small": (
        "every client keeps a fifth of its samples, 2,000 test images, a tenth of the rounds (at least 40), the "
        "small networks at a quarter of their width and the quarter-width CNN for all larger ones, with learning rates "
        "of at most 0.03, because it has no normalization; all else as printed. Comparable is the order of the methods."
    ),
    "paper": "exactly as printed.",
}
# Of the setting of the one-shot methods, FedAvg among them.
ONE_SHOT_RULES = {
    "smoke": (
        "digits (8x8, enlarged to 28x28) for every data set, at most 5 clients with batches of 32, one local epoch for "
        "40, an eighth of the width of the small CNNs, which also replace GoogLeNet and ResNet-18; on the server 4 "
        "epochs of 3 generator steps, batches of 32, a generator of a sixteenth of its width. Shows that everything "
        "runs; the numbers mean nothing else."
    ),
    "small": (
        "10,000 training and 2,000 test images, a tenth of the local epochs; networks of color images at half their "
        "width, heterogeneous ones at a quarter; on the server 30 epochs of 10 generator steps, batches of 64, a "
        "generator of a quarter of its width; all else as printed. Comparable is the order of the methods."
    ),
    "paper": "exactly as printed.",
}
SERVER = {
    "smoke": {"distill_epochs": 4, "generator_steps": 3, "batch": 32, "generator_width": 0.0625},
    "small": {"distill_epochs": 30, "generator_steps": 10, "batch": 64, "generator_width": 0.25},
}
SMOKE_NETWORKS = {"googlenet": "cnn2", "resnet18": "cnn3"}
SMALL_NETWORKS = ("mlp", "cnn", "fedacd_cnn")
# First stage after the cut, in a ResNet and in the CNN: after convolution 5 or 9, 13, and 17.
CUTS = {2: 1, 3: 1, 4: 2, 5: 3}
# At scale small, a data set that is not at hand is replaced; at scale paper nothing is.
STAND_INS = {
    "svhn": "fmnist",
    "emnist_byclass": "emnist_letters",
    "femnist": "emnist_letters",
    "tinyimagenet": "cifar100",
}


def at_scale(experiment: Experiment, scale: str) -> Experiment:
    """The experiment of a paper, as it is run at a scale. Raises ValueError for an unknown scale."""
    e = experiment
    check_scale(scale)
    if scale == "paper":
        return e
    if one_shot_setting(e):
        return one_shot_at_scale(e, scale)
    if scale == "smoke":
        mlp = e.model == "mlp"
        network: dict[str, Any] = {"model": "mlp", "width": 0.25} if mlp else {"model": "cnn", "width": 0.125}
        epochs = -(-e.local_epochs // 3)
        count = 1 if e.clients == 1 else 20
        clients = {"clients": count, "sampled": min(e.sampled, count), "min_samples": 1}
        options = resized(e, network["model"], 15 * epochs)
        return e.replace(
            dataset="digits", rounds=15, local_epochs=epochs, method_options=options, partition=replaced_partition(e),
            **clients, **network,
        )  # fmt: skip
    rounds, model = max(40, e.rounds // 10), e.model if e.model in SMALL_NETWORKS else "cnn"
    return e.replace(
        dataset=stand_in(e.dataset),
        partition=e.partition if stand_in(e.dataset) == e.dataset else replaced_partition(e),
        model=model,
        method_options=resized(e, model, rounds * e.local_epochs),
        sample_share=0.2,
        test_size=2_000,
        width=0.25,
        rounds=rounds,
        # FedImpro's 0.1, without momentum, was chosen for a ResNet with BatchNorm: the CNN stays at chance with it.
        lr=e.lr if model == e.model else min(e.lr, 0.03),
        # A smaller stand-in may be unable to give every client the printed minimum.
        min_samples=1 if stand_in(e.dataset) != e.dataset else e.min_samples,
    )


def one_shot_setting(e: Experiment) -> bool:
    """Whether a run belongs to the comparison of one-shot methods; FedAvg's do, with pixels as generators make them."""
    return e.one_shot or e.pixels == "unit"


def one_shot_at_scale(e: Experiment, scale: str) -> Experiment:
    """A run in the setting of the one-shot methods at scale smoke or small; no data set is replaced at scale small."""
    options = dict(e.method_options)
    if e.one_shot:
        now = vars(oneshot.build(e.method, options))
        options |= {name: min(now[name], most) for name, most in SERVER[scale].items() if name in now}
    if scale == "small":
        width = 1.0 if e.model == "cnn2" else 0.25 if e.model == "resnet18" else 0.5
        epochs = -(-e.local_epochs // 10)
        return e.replace(train_size=10_000, test_size=2_000, width=width, local_epochs=epochs, method_options=options)
    clients = min(e.clients, 5)
    return e.replace(
        dataset="digits", model="cnn2", client_models=tuple(SMOKE_NETWORKS.get(name, name) for name in e.client_models),
        width=0.125, clients=clients, sampled=clients, local_epochs=-(-e.local_epochs // 40), batch_size=32,
        augment=False, method_options=options,
    )  # fmt: skip


def resized(e: Experiment, model: str, epochs: int) -> dict[str, Any]:
    """Method options that refer to the network or to the length of a run, as they are with another ``model``.

    epochs: local epochs of the whole run. FedImpro's cut moves to the CNN's corresponding stage, and the weight of its
    drawn features rises over the same share of the run.
    """
    options = dict(e.method_options)
    if e.method == "fedimpro":
        if model != e.model and options.get("cut") is not None:
            options["cut"] = CUTS[options["cut"]]
        options["ramp"] = options.get("ramp", 500) * epochs / (e.rounds * e.local_epochs)
    return options


def replaced_partition(e: Experiment) -> str:
    """The partition of a data set that stands in for another: it has no writers."""
    return "iid" if e.partition == "natural" else e.partition


def stand_in(dataset: str) -> str:
    """The data set that is used for ``dataset`` at scale small."""
    return dataset if available(dataset) else STAND_INS.get(dataset, dataset)


def check_scale(scale: str) -> None:
    """Raise ValueError for an unknown scale, whose name must not become that of a folder."""
    one_of("scale", scale, RULES)


def rules(scale: str, experiments: Sequence[Experiment]) -> str:
    """What a reader must know about the numbers of a scale: the rule, and the data sets that were replaced.

    experiments: those of a table or figure at the paper's scale.
    """
    if any(one_shot_setting(e) for e in experiments):
        return f"Scale {scale}: {ONE_SHOT_RULES[scale]}"
    replaced = sorted({e.dataset for e in experiments if scale == "small" and stand_in(e.dataset) != e.dataset})
    text = f"Scale {scale}: {RULES[scale]}"
    for dataset in replaced:
        text += f" {DATASETS[dataset].title} is replaced by {DATASETS[stand_in(dataset)].title}."
    if any(at_scale(e, scale).partition != e.partition for e in experiments):
        text += " Clients that are writers become equal random parts."
    if scale == "smoke" and any(e.clients == 1 for e in experiments):
        text += " Centralized training has one client that holds everything."
    return text
