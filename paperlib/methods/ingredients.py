"""What several methods are made of, each once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from paperlib.data.batches import normalise
from paperlib.federated.context import Batch, Context
from paperlib.methods.base import FedAvg, Upload, Uploads
from paperlib.networks import Network

MASKED = -1e9  # a logit that takes no part; finite, so that its gradient is zero and not NaN
PASS = 250  # images per forward pass outside of training


def effective_steps(steps: int, momentum: float, pull: float = 0.0) -> float:
    """a(K, rho): how far K steps of momentum SGD go along a constant gradient, in plain steps; K without momentum.

    pull: lr mu, where a proximal term mu/2 ||w - w_0||^2 pulls back to the start.
    Wang et al. 2020, "Tackling the objective inconsistency problem in heterogeneous federated optimization", section 4.
    """
    if pull:
        way = speed = 0.0
        for _ in range(steps):
            speed = momentum * speed + 1 - pull * way
            way += speed
        return way
    ramp = momentum * (1 - momentum**steps) / (1 - momentum)
    return (steps - ramp) / (1 - momentum)


def pull(g: Tensor, theta: Tensor, anchor: Tensor, strength: float) -> Tensor:
    """g + strength (theta - anchor), [P], in place: with the gradient of strength/2 ||theta - anchor||^2 added."""
    return g.add_(theta - anchor, alpha=strength)


def clip_norm(g: Tensor, bound: float) -> Tensor:
    """g [P] scaled down to the norm ``bound`` if it is longer, in place."""
    return g.mul_((bound / (g.norm() + 1e-6)).clamp(max=1.0))


def ascent(g: Tensor, rho: float) -> Tensor:
    """g [P] scaled to the length rho, in place; zero stays zero.

    Foret et al. 2021, "Sharpness-aware minimization for efficiently improving generalization", Eq. 2.
    """
    return g.mul_(rho / (g.norm() + 1e-12))


def uncounted(batch: Batch) -> Batch:
    """The batch for a second forward pass, which BatchNorm's statistics do not count."""
    return replace(batch, buffers=batch.buffers.clone())


def extrapolated(theta: Tensor, new: Tensor, factor: float | Tensor) -> Tensor:
    """theta + factor (new - theta), [P]; the very bits of ``new`` for a factor of 1."""
    return new + (factor - 1) * (new - theta)


def summed(uploads: Uploads, name: str, total: Tensor) -> Iterator[tuple[float, int, Upload]]:
    """Pass the uploads on, which can be read only once, and add their entry ``name`` to ``total`` [P] on the way."""
    for p, client, upload in uploads:
        total.add_(upload[name])
        yield p, client, upload


def teacher_logits(net: Network, batch: Batch) -> Tensor:
    """Logits [B, C] of the global model that the client received, in evaluation mode and without gradient."""
    with torch.no_grad():
        return net(batch.theta_global, batch.x, buffers=batch.buffers_global)


def outputs_of(
    context: Context, theta: Tensor, buffers: Tensor | None, chosen: Tensor, stop: int | str | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Output of the stages before ``stop`` (default: all) and label of the training samples ``chosen`` [n], in parts.

    The images are not augmented, the network is in evaluation mode, nothing has a gradient.
    """
    data = context.data
    for part in chosen.split(PASS):
        x = normalise(data.train_images[part], data).to(theta.dtype)
        with torch.no_grad():
            out = context.net(theta, x, stop=stop, buffers=buffers)
        yield out, data.train_labels[part]


def softened_kl(teacher: Tensor, student: Tensor, temperature: float, rows: Tensor | None = None) -> Tensor:
    """KL(softmax(teacher / T) || softmax(student / T)) of logits [B, C], mean over the batch, scalar in nats.

    rows: bool [B], the samples that count; None: all.
    """
    p, q = log_softmax(teacher / temperature, 1), log_softmax(student / temperature, 1)
    if rows is None:
        return kl_div(q, p, log_target=True, reduction="batchmean")
    return mean_of(kl_div(q, p, log_target=True, reduction="none").sum(1), rows)


def mean_of(values: Tensor, rows: Tensor | None) -> Tensor:
    """Mean of one value per sample, [B], over the samples that count: bool [B], or None for all; scalar."""
    return values.mean() if rows is None else values.masked_fill(~rows, 0.0).sum() / rows.sum()


def adjust_logits(logits: Tensor, counts: Tensor, shift: Callable[[Tensor], Tensor]) -> Tensor:
    """logits [B, C] + shift(counts), and minus infinity for a class the client has no sample of.

    counts: int64 [C]; outputs beyond the first C stay as they are. shift: [C] -> [C], of counts that are at least 1. An
    absent class thereby has probability zero and its row of the classifier no gradient.
    """
    own, others = logits.tensor_split([len(counts)], dim=1)
    own = (own + shift(counts.clamp(min=1).to(logits.dtype))).masked_fill(counts == 0, -torch.inf)
    return torch.cat([own, others], 1) if others.shape[1] else own


def use_preset(method: FedAvg, presets: Mapping[str, Mapping[str, Any]], choices: Mapping[str, Sequence[Any]]) -> None:
    """Fill the options that are None from the named preset, then refuse what is not among the choices of an option."""
    name = type(method).__name__
    preset = method.preset  # type: ignore[attr-defined]
    if preset not in presets:
        raise ValueError(f"preset of {name} is {preset!r}; choose one of {', '.join(presets)}")
    for option, value in presets[preset].items():
        if getattr(method, option) is None:
            setattr(method, option, value)
    check_choices(method, choices)


def check_choices(method: FedAvg, choices: Mapping[str, Sequence[Any]]) -> None:
    """Refuse, with a ValueError, an option whose value is not among its choices."""
    for option, allowed in choices.items():
        if getattr(method, option) not in allowed:
            raise ValueError(
                f"{option} of {type(method).__name__} is {getattr(method, option)!r}; "
                f"choose one of {', '.join(map(str, allowed))}"
            )


def demand(method: FedAvg, option: str, fits: bool, what: str) -> None:
    """Raise ValueError for the value of an option that does not fit."""
    if not fits:
        value = getattr(method, option)
        raise ValueError(f"{option} of {type(method).__name__} is {value!r}, but must be {what}")


def refuse_beside(method: FedAvg, name: str, others: Iterable[type[FedAvg]], reason: str) -> None:
    """Raise ValueError where the method ``name`` has been combined, in whichever order, with one of the others."""
    for other in others:
        if isinstance(method, other):
            raise ValueError(f"{name} cannot be combined with {other.__name__}: {reason}")
