"""Floating-point operations of the server of a one-shot run, counted before the run; the same on every machine."""

from collections.abc import Callable

from paperlib import oneshot
from paperlib.experiment import Experiment
from paperlib.networks import build
from paperlib.networks.operations import count_pass, counted, key_of
from paperlib.oneshot.co_boosting import CoBoosting
from paperlib.oneshot.distillation import Distillation
from paperlib.oneshot.fedhydra import FedHydra
from paperlib.oneshot.generator import generator


def server_operations(experiment: Experiment, shape: tuple[int, int, int], classes: int) -> tuple[float, float]:
    """Operations of the server over all communication rounds: before their first epochs, and in the epochs.

    Without evaluation; 0 for a method that only averages. shape, classes: of the images and labels of the data set.
    """
    e, method = experiment, oneshot.build(experiment.method, experiment.method_options)
    if not isinstance(method, Distillation):
        return 0.0, 0.0
    models = e.client_models or (e.model,) * e.clients

    def pass_of(model: str, *by: str, train: bool = False) -> float:
        key = f"{key_of(model, e.width, shape, classes)} pass {'+'.join(by)}{' train' * train}".rstrip()
        return _looked_up(key, lambda: count_pass(build(model, shape, classes, e.width), shape, by, train))

    def of_generator(*by: str) -> float:
        kind, latent, width = method.generator, method.latent, method.generator_width
        key = f"{key_of(f'generator-{kind}', width, shape, latent)} pass {'+'.join(by)}"
        return _looked_up(key, lambda: count_pass(generator(kind, latent, shape, width), (latent,), by))

    generation = of_generator("theta", "x") if method.train_latent else of_generator("theta")
    answers = sum(pass_of(model) for model in models)
    attack = sum(pass_of(model, "x") for model in models)
    opposed = pass_of(e.model, "x") if method.lambda_2 else 0.0
    learning = pass_of(e.model, "theta", train=True)

    steps, epochs = method.generator_steps, method.epochs
    kept = steps if method.train_on == "intermediates" else 1  # batches per epoch
    seen = epochs * (epochs + 1) / 2 if method.train_on == "pool" else epochs * kept  # batches, by the student
    if isinstance(method, CoBoosting) and method.epsilon:
        learning += attack + answers  # images are perturbed, and clients answer again
    elif method.augment:
        learning += answers
    batches = epochs * steps * (generation + attack + opposed) + epochs * kept * answers + seen * learning
    stratification = 0.0
    if isinstance(method, FedHydra) and method.teacher == "sa":
        plain = of_generator("theta")  # its latent vectors are fixed
        stratification = classes * steps * (len(models) * plain + attack)
    return e.rounds * method.batch * stratification, e.rounds * method.batch * batches


def _looked_up(key: str, count: Callable[[], float]) -> float:
    known = counted()
    if key not in known:
        known[key] = count()
    return known[key]
