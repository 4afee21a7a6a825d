"""Quantities recorded during a run, at every evaluated round. They read, and change nothing in the run."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.federated.evaluation import Scores, evaluate
from paperlib.federated.local import start_visit
from paperlib.federated.streams import rng, torch_rng
from paperlib.ingredients.label_matrix import label_matrix, template_divergence
from paperlib.methods import FedAvg
from paperlib.methods.fedgps import FedGPS
from paperlib.metrics.cka import linear_cka
from paperlib.metrics.risk import adaptability_risk, client_accuracy

if TYPE_CHECKING:
    from paperlib.federated.simulator import Progress

PROBES = 1_000  # test images on which representations are compared
PARTIAL = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # clients in a partial update, of which
SUBSETS = 100  # are drawn


@dataclass
class LocalModel:
    """A sampled client's model after its local epochs: theta [P], buffers [Q], and its weight in the average."""

    client: int
    weight: float
    theta: Tensor
    buffers: Tensor


@dataclass
class Seen:
    """What a measure sees: the state after a round's aggregation, the local models before it, the global scores."""

    method: FedAvg
    progress: "Progress"
    local_models: list[LocalModel]
    scores: Scores
    pool: Executor


def adaptability(seen: Seen) -> dict[str, float]:
    """How well one model serves all clients (FedACD, section 4.1).

    client_accuracy: percent, of the global model on test sets with each client's label shares, mean over all clients
    (Table 2). After the last round also, as means over the local models: adaptability_risk, a share (Eq. 3, Table 3),
    local_accuracy, percent on the whole test set, and template_kl, nats, of P from local training data (Table 9).
    """
    context, e = seen.method.context, seen.method.context.experiment
    row = {"client_accuracy": client_accuracy(seen.scores.errors, context.counts)}
    if seen.progress.round < e.rounds:
        return row
    risks, accuracies, divergences = [], [], []
    for local in seen.local_models:
        scores = evaluate(context.net, local.theta, local.buffers, context.data, seen.pool)
        risks.append(adaptability_risk(scores.errors, context.counts))
        accuracies.append(scores.accuracy)
        visit = start_visit(context, e.rounds, local.client, local.theta, local.buffers)
        divergences.append(float(template_divergence(label_matrix(context, local.theta, visit), visit.counts)))
    names = ("adaptability_risk", "local_accuracy", "template_kl")
    return row | {n: sum(v) / len(v) for n, v in zip(names, (risks, accuracies, divergences), strict=True)}


def weight_divergence(seen: Seen) -> dict[str, float]:
    """Mean over the sampled clients of ||theta_bar - theta_k||, theta_bar their weighted average (FedImpro, Figure 2b).

    weight_divergence: of all parameters; weight_divergence/<stage> and weight_divergence/<tensor>: of the parameters of
    one stage, and of one layer's weight (Figures 3 and 9).
    """
    net, models = seen.method.net, seen.local_models
    total = sum(local.weight for local in models)
    mean = torch.zeros_like(models[0].theta)
    for local in models:
        mean.add_(local.theta, alpha=local.weight / total)
    row: dict[str, float] = {}
    for local in models:
        parts = net.split(local.theta - mean)
        squares = {name: float(part.double().square().sum()) for name, part in parts.items()}
        of = {"": sum(squares.values())}
        for tensor in net.tensors:
            stage = f"/{net.stages[tensor.stage]}"
            of[stage] = of.get(stage, 0.0) + squares[tensor.name]
            if len(tensor.shape) > 1:
                of[f"/{tensor.name}"] = squares[tensor.name]
        for name, square in of.items():
            name = "weight_divergence" + name
            row[name] = row.get(name, 0.0) + square**0.5 / len(models)
    return row


def participation_gap(seen: Seen) -> dict[str, float]:
    """participation_gap/<K>: distance of the average of K local models from that of all sampled (GC-Fed, Figure 1b).

    Mean over random subsets, weighted within each as in the aggregation; K is 1, 2, 5, 10, 20, ... up to all, for
    whom it is 0. It is the distance of the updates too, since the clients have started from one model.
    """
    models = seen.local_models
    weights = torch.tensor([local.weight for local in models], dtype=torch.float64)
    theta = torch.stack([local.theta for local in models])
    away = theta - (weights / weights.sum()).to(theta) @ theta
    products = (away @ away.T).double().cpu()
    draw = rng(seen.method.context.experiment.seed, "participation_gap", seen.progress.round)
    row = {}
    for some in sorted({k for k in PARTIAL if k < len(models)} | {len(models)}):
        chosen = [torch.from_numpy(draw.permutation(len(models))[:some]) for _ in range(SUBSETS)]
        shares = [weights[part] / weights[part].sum() for part in chosen]
        squares = [w @ products[part][:, part] @ w for part, w in zip(chosen, shares, strict=True)]
        row[f"participation_gap/{some}"] = sum(float(square.clamp(min=0)) ** 0.5 for square in squares) / SUBSETS
    return row


def cka(seen: Seen) -> dict[str, float]:
    """cka/<stage>: linear CKA of local and global outputs of a stage, mean over the sampled clients (GC-Fed, Figure 7).

    Both see the same test images; the global model is the one that was evaluated.
    """
    net, data = seen.method.net, seen.method.context.data
    x = normalise(data.test_images[:PROBES], data)

    def outputs(theta: Tensor, buffers: Tensor) -> list[Tensor]:
        out, made = x.to(theta.dtype), []
        with torch.inference_mode():
            for position in range(len(net.stages)):
                out = net(theta, out, start=position, stop=position + 1, buffers=buffers)
                made.append(out.flatten(1))
        return made

    common = outputs(seen.method.finish(seen.progress.theta, seen.progress.server), seen.progress.buffers)

    def similarities(local: LocalModel) -> list[float]:
        with torch.inference_mode():
            return [linear_cka(a, b) for a, b in zip(outputs(local.theta, local.buffers), common, strict=True)]

    of_clients = list(seen.pool.map(similarities, seen.local_models))
    means = [sum(values) / len(values) for values in zip(*of_clients, strict=True)]
    return {f"cka/{stage}": mean for stage, mean in zip(net.stages, means, strict=True)}


def surrogate_divergence(seen: Seen) -> dict[str, float]:
    """Distance of local surrogate features from the global prototypes, mean over all clients (FedGPS, Figure 2c).

    A client that was not sampled counts with the last model it trained, one that never was does not count. The
    authors' code divides the sum over all clients by the number of sampled ones instead.
    """
    method, clients, server = seen.method, seen.progress.clients, seen.progress.server
    assert isinstance(method, FedGPS)  # the experiment has checked it

    def distance(client: int) -> float:
        own = clients[client]  # one at a time: all of them may not fit into memory
        return prototype_distance(method, own["model/theta"], own["model/buffers"], server["prototypes"])

    distances = list(seen.pool.map(distance, clients))
    return {"surrogate_divergence": sum(distances) / len(distances)}


def prototype_distance(method: FedGPS, theta: Tensor, buffers: Tensor, prototypes: Tensor) -> float:
    """Mean distance of features of surrogate images, in evaluation mode, from their prototypes [C, d]."""
    assert method.images is not None
    labels, generator = method.images.labels, torch_rng(0, "probe")
    chosen = torch.randint(len(labels), (5 * method.surrogate_batch,), generator=generator).to(theta.device)
    away = method.surrogate_features(theta, buffers, chosen) - prototypes[labels[chosen]]
    return float(away.norm(dim=1).nanmean())


MEASURES: dict[str, Callable[[Seen], dict[str, float]]] = {
    "adaptability": adaptability,
    "weight_divergence": weight_divergence,
    "participation_gap": participation_gap,
    "cka": cka,
    "surrogate_divergence": surrogate_divergence,
}
