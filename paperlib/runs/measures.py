"""Quantities recorded at every evaluated round of a run. They do not change the run."""

from collections.abc import Callable

import torch
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.experiment import Experiment
from paperlib.federated.evaluation import Scores, evaluate
from paperlib.federated.local import start_visit
from paperlib.federated.progress import LocalModel, Measures, RoundSnapshot
from paperlib.methods.fedgps import FedGPS
from paperlib.methods.math.cka import linear_cka
from paperlib.methods.math.label_matrix import label_matrix, template_divergence, uniform_divergence
from paperlib.quantities.risk import adaptability_risk, client_accuracy
from paperlib.random_streams import rng, torch_rng

PROBES = 1_000  # test images on which representations are compared
PARTIAL = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # clients in a partial update
SUBSETS = 100  # random subsets of each size


def adaptability(snapshot: RoundSnapshot) -> dict[str, float]:
    """Measure how well one model serves all clients (FedACD, section 4.1).

    client_accuracy: percent, of the global model on test sets with each client's label shares, mean over all clients
    (Table 2). After the last round also, as means over the local models: adaptability_risk, a share (Eq. 3, Table 3),
    local_accuracy, percent on the whole test set, and of P from local training data, in nats, template_kl, KL(P || Q)
    (Table 9), and uniform_kl, KL(P || uniform), both over the classes that the client has.
    """
    context, e = snapshot.method.context, snapshot.method.context.experiment
    counts = context.counts[context.sizes > 0]
    row = {"client_accuracy": client_accuracy(error_rates(snapshot.scores), counts)}
    if snapshot.progress.round < e.rounds:
        return row
    risks, accuracies, to_template, to_uniform = [], [], [], []
    for local in snapshot.local_models:
        scores = evaluate(context.net, local.theta, local.buffers, snapshot.test, snapshot.pool)
        risks.append(adaptability_risk(error_rates(scores), counts))
        accuracies.append(scores.accuracy)
        visit = start_visit(context, e.rounds, local.client, local.theta, local.buffers)
        p = label_matrix(context, local.theta, visit)
        to_template.append(float(template_divergence(p, visit.counts)))
        to_uniform.append(float(uniform_divergence(p, visit.counts)))
    names = ("adaptability_risk", "local_accuracy", "template_kl", "uniform_kl")
    columns = (risks, accuracies, to_template, to_uniform)
    return row | {name: sum(values) / len(values) for name, values in zip(names, columns, strict=True)}


def error_rates(scores: Scores) -> Tensor:
    """Share of the test images of each class that are classified wrongly, float64 [C]; NaN for a class without one."""
    return 1 - scores.hits.double() / scores.images


def weight_divergence(snapshot: RoundSnapshot) -> dict[str, float]:
    """Mean over the sampled clients of ||theta_bar - theta_k||, theta_bar their weighted average (FedImpro, Figure 2b).

    weight_divergence: of all parameters; weight_divergence/<stage> and weight_divergence/<tensor>: of the parameters of
    one stage, and of one layer's weight (Figures 3 and 9).
    """
    net, models = snapshot.method.net, snapshot.local_models
    total = sum(local.weight for local in models)
    mean = torch.zeros_like(models[0].theta)
    for local in models:
        mean.add_(local.theta, alpha=local.weight / total)
    row: dict[str, float] = {}
    for local in models:
        parts = net.split(local.theta - mean)
        squares = {name: float(part.double().square().sum()) for name, part in parts.items()}
        by_part = {"": sum(squares.values())}
        for tensor in net.tensors:
            stage = f"/{net.stages[tensor.stage]}"
            by_part[stage] = by_part.get(stage, 0.0) + squares[tensor.name]
            if len(tensor.shape) > 1:
                by_part[f"/{tensor.name}"] = squares[tensor.name]
        for name, square in by_part.items():
            name = "weight_divergence" + name
            row[name] = row.get(name, 0.0) + square**0.5 / len(models)
    return row


def participation_gap(snapshot: RoundSnapshot) -> dict[str, float]:
    """participation_gap/<K>: distance of the average of K local models from that of all sampled (GC-Fed, Figure 1b).

    Mean over random subsets, weighted as in the aggregation; K is 1, 2, 5, 10, 20, ... up to all, where it is 0. This
    is also the distance of the updates, because all clients start from the same model.
    """
    models = snapshot.local_models
    weights = torch.tensor([local.weight for local in models], dtype=torch.float64)
    theta = torch.stack([local.theta for local in models])
    away = theta - (weights / weights.sum()).to(theta) @ theta
    products = (away @ away.T).double().cpu()
    draw = rng(snapshot.method.context.experiment.seed, "participation_gap", snapshot.progress.round)
    row = {}
    for some in sorted({k for k in PARTIAL if k < len(models)} | {len(models)}):
        chosen = [torch.from_numpy(draw.permutation(len(models))[:some]) for _ in range(SUBSETS)]
        shares = [weights[part] / weights[part].sum() for part in chosen]
        squares = [w @ products[part][:, part] @ w for part, w in zip(chosen, shares, strict=True)]
        row[f"participation_gap/{some}"] = sum(float(square.clamp(min=0)) ** 0.5 for square in squares) / SUBSETS
    return row


def cka(snapshot: RoundSnapshot) -> dict[str, float]:
    """cka/<stage>: linear CKA of local and global outputs of a stage, mean over the sampled clients (GC-Fed, Figure 7).

    Both see the same test images; the global model is the one that was evaluated.
    """
    net, data = snapshot.method.net, snapshot.test
    x = normalise(data.test_images[:PROBES], data)

    def outputs(theta: Tensor, buffers: Tensor) -> list[Tensor]:
        out, layers = x.to(theta.dtype), []
        with torch.inference_mode():
            for position in range(len(net.stages)):
                out = net(theta, out, start=position, stop=position + 1, buffers=buffers)
                layers.append(out.flatten(1))
        return layers

    progress = snapshot.progress
    common = outputs(snapshot.method.finish(progress.theta, progress.server), progress.buffers)

    def similarities(local: LocalModel) -> list[float]:
        with torch.inference_mode():
            return [linear_cka(a, b) for a, b in zip(outputs(local.theta, local.buffers), common, strict=True)]

    of_clients = list(snapshot.pool.map(similarities, snapshot.local_models))
    means = [sum(values) / len(values) for values in zip(*of_clients, strict=True)]
    return {f"cka/{stage}": mean for stage, mean in zip(net.stages, means, strict=True)}


def surrogate_divergence(snapshot: RoundSnapshot) -> dict[str, float]:
    """Distance of local surrogate features from the global prototypes, mean over all clients (FedGPS, Figure 2c).

    A client that was not sampled counts with its last trained model; clients that were never sampled do not count. The
    authors' code divides the sum over all clients by the number of sampled ones instead.
    """
    method, clients, server = snapshot.method, snapshot.progress.clients, snapshot.progress.server
    assert isinstance(method, FedGPS)  # the experiment has checked it

    def distance(client: int) -> float:
        own = clients[client]  # one at a time: all of them may not fit into memory
        return prototype_distance(method, own["model/theta"], own["model/buffers"], server["prototypes"])

    distances = list(snapshot.pool.map(distance, clients))
    return {"surrogate_divergence": sum(distances) / len(distances)}


def shift(snapshot: RoundSnapshot) -> dict[str, float]:
    """Length of the shift at which FedGPS takes the gradient (Eq. 7), for a client that was not in the last round.

    shift_length: ||e||. shift_ratio: ||e|| / ||v||, v the mean update of the round. Both are 0 if v is 0. For a client
    of the round, v would exclude its own update.
    """
    method, v = snapshot.method, snapshot.progress.server["mean"]
    assert isinstance(method, FedGPS)  # the experiment has checked it
    e = method.shift(v)
    length = 0.0 if e is None else float(e.norm())
    return {"shift_length": length, "shift_ratio": length and length / float(v.norm())}


def prototype_distance(method: FedGPS, theta: Tensor, buffers: Tensor, prototypes: Tensor) -> float:
    """Mean distance of features of surrogate images, in evaluation mode, from their prototypes [C, d]."""
    assert method.images is not None
    labels, generator = method.images.labels, torch_rng(0, "probe")
    chosen = torch.randint(len(labels), (5 * method.surrogate_batch,), generator=generator).to(theta.device)
    away = method.surrogate_features(theta, buffers, chosen) - prototypes[labels[chosen]]
    return float(away.norm(dim=1).nanmean())


MEASURES: dict[str, Callable[[RoundSnapshot], dict[str, float]]] = {
    "adaptability": adaptability,
    "weight_divergence": weight_divergence,
    "participation_gap": participation_gap,
    "cka": cka,
    "surrogate_divergence": surrogate_divergence,
    "shift": shift,
}
# Measures of local models; for these a round keeps its local models in memory until the evaluation.
OF_LOCAL_MODELS = ("adaptability", "weight_divergence", "participation_gap", "cka")


def measures_of(experiment: Experiment) -> Measures:
    """The measures of an experiment."""
    names = experiment.measure
    return Measures(tuple(MEASURES[name] for name in names), any(name in OF_LOCAL_MODELS for name in names))
