"""Checks an experiment: its names must exist and fit together."""

from collections.abc import Iterable

from paperlib import methods, oneshot
from paperlib.checks import one_of, quote
from paperlib.data.batches import AUGMENTATIONS
from paperlib.data.datasets import DATASETS, available
from paperlib.data.partitions import kind_of
from paperlib.data.surrogate import IMAGES
from paperlib.experiment import Experiment
from paperlib.methods.fedgps import FedGPS
from paperlib.networks import MODELS
from paperlib.runs.measures import MEASURES


def check(experiment: Experiment) -> None:
    """Raise ValueError, in one sentence, for an unknown name or an impossible combination."""
    if not isinstance(experiment, Experiment):
        raise ValueError(f"experiment is {quote(experiment)}, but must be an Experiment, such as Experiment()")
    e = experiment
    for name in e.measure:
        one_of("measure", name, MEASURES)
    if e.dataset not in DATASETS and not available(e.dataset):  # a user's own data set is a file
        one_of("dataset", e.dataset, DATASETS)
    one_of("model", e.model, MODELS)
    one_of("method", e.method, [*methods.REGISTRY, *oneshot.REGISTRY])
    if isinstance(e.augment, str):
        one_of("augment", e.augment, AUGMENTATIONS)
    kind_of(e.partition, e.alpha)
    if e.evaluate_on == "validation" and (e.train_size is None or e.test_size is None):
        raise ValueError("evaluate_on is 'validation', so that train_size and test_size must be numbers of images")
    if oneshot.is_one_shot(e):
        _check_one_shot(e)
    else:
        _check_rounds(e)


def check_all(experiments: Iterable[Experiment]) -> None:
    """`check` for many experiments; those that differ only in seeds, lengths and rates are checked once."""
    unlike: dict[tuple[object, ...], Experiment] = {}
    for e in experiments:
        if not isinstance(e, Experiment):
            check(e)
        names = (e.dataset, e.model, e.partition, e.alpha is None, e.augment, e.measure, e.client_models, e.method)
        numbers = (e.clients == e.sampled, e.clients, e.rounds > 1, e.evaluate_on, e.train_size, e.test_size)
        unlike.setdefault((*names, str(e.method_options), *numbers), e)
    for e in unlike.values():
        check(e)


def _check_rounds(e: Experiment) -> None:
    if e.client_models:
        raise ValueError(f"client_models must be empty: {e.method} is not one of {', '.join(oneshot.REGISTRY)}")
    method = methods.build(e.method, e.method_options)
    images = isinstance(method, FedGPS) and method.surrogate in IMAGES
    if "surrogate_divergence" in e.measure and not images:
        raise ValueError("measure surrogate_divergence needs FedGPS with surrogate stylegan or gaussian")
    if "shift" in e.measure and not isinstance(method, FedGPS):
        raise ValueError("measure shift needs FedGPS")


def _check_one_shot(e: Experiment) -> None:
    method = oneshot.build(e.method, e.method_options)
    if e.sampled != e.clients:
        raise ValueError(f"sampled is {e.sampled}, but must be {e.clients}: all clients take part in a one-shot run")
    if e.measure:
        raise ValueError(
            f"measure is {quote(e.measure)}, but must be empty: a one-shot run measures what its method does"
        )
    for name in e.client_models:
        one_of("client model", name, MODELS)
    if e.client_models and len(e.client_models) != e.clients:
        raise ValueError(
            f"client_models names {len(e.client_models)} networks, but must name one for each of {e.clients} clients"
        )
    if e.client_models and (e.rounds > 1 or method.one_architecture):
        needed = e.method if method.one_architecture else "a run of several rounds"
        raise ValueError(f"client_models must be empty: {needed} needs clients with the server's architecture")
