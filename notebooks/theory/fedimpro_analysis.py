"""FedImpro's quantities on the model of a finished run: gradient variance and distance of features.

Definitions 4.1 and 4.2, Theorem 4.2. Each needs the final parameters of a run of FedImpro, so the run must be in a
store, and reads its clients' images once.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.local import start_visit
from paperlib.papers.fedimpro.analysis import clients_of
from paperlib.runs.store import Run
from variance import gradient_variance, mixed_gradients, reduction
from wasserstein import ConditionalWasserstein, conditional_wasserstein, empirical_w1

Samples = NDArray[Any]
COMPARED = 100  # samples per side of a Wasserstein distance, whose cost grows with their product


def variance_by_draws(run: Run, ratios: tuple[float, ...] = (0.0, 0.5, 1.0, 3.0)) -> pd.DataFrame:
    """Variance between the clients' gradients of the upper layers, by N_hat / N (Definition 4.2, Theorem 4.2).

    Columns: ratio; same: all clients add the gradient of the same drawn features; own: each draws its own; predicted:
    (N / (N + N_hat))^2 times the variance without drawn features, which must equal ``same`` if every client draws in
    proportion to its samples.
    """
    clients = clients_of(run)
    method, shape = clients.method, clients.method.shape
    low = sum(t.size for t in method.net.tensors if t.stage < method.first)

    def gradient(h: Tensor, y: Tensor) -> Tensor:
        theta = clients.theta.clone().requires_grad_()
        logits = method.net(theta, h.view(-1, *shape), start=method.first, buffers=clients.buffers)
        return torch.autograd.grad(cross_entropy(logits, y), theta)[0][low:].double()

    def drawn(client: int) -> Tensor:
        """Gradient of as many drawn features as the client has samples."""
        visit = start_visit(method.context, 1, client, clients.theta, clients.buffers)
        y = torch.arange(len(clients.y[client])) % method.classes
        z = torch.randn(len(y), method.size, generator=visit.generator)
        return gradient(clients.mu[y] + clients.s[y] * z, y)

    real = torch.stack([gradient(h, y) for h, y in zip(clients.h, clients.y, strict=True)])
    own = torch.stack([drawn(k) for k in range(len(clients.y))])
    n = torch.tensor([len(y) for y in clients.y], dtype=torch.float64)
    alone = float(gradient_variance(real, n))
    rows = []
    for ratio in ratios:
        mixtures = {name: mixed_gradients(real, g, n, ratio * n) for name, g in (("same", own[0]), ("own", own))}
        row = {name: float(gradient_variance(g, n)) for name, g in mixtures.items()}
        rows.append({"N̂/N": ratio} | row | {"predicted": alone * reduction(n, ratio * n)})
    return pd.DataFrame(rows)


def conditional_wasserstein_of_samples(
    x: Samples, labels_x: Samples, y: Samples, labels_y: Samples
) -> ConditionalWasserstein:
    """C_d of two labelled samples: points [n, d] and [m, d], or [n] and [m], labels int [n] and [m].

    Raises ValueError as `empirical_w1`, which gives W_c.
    """
    classes = np.union1d(labels_x, labels_y)
    of_x, of_y = (labels_x == classes[:, None]), (labels_y == classes[:, None])  # [C, n], [C, m]
    distances = [empirical_w1(x[a], y[b]) if a.any() and b.any() else np.nan for a, b in zip(of_x, of_y, strict=True)]
    return conditional_wasserstein(of_x.mean(1), of_y.mean(1), distances)


def feature_distance(run: Run) -> pd.DataFrame:
    """C_d (Definition 4.1) between the features of each client and those of all others, Euclidean, at the cut.

    Columns: client, distance, left_out (share of the labels that only one side has; the distance ignores them).
    """
    clients, rows = clients_of(run), []
    for k in range(len(clients.h)):
        rest = [j for j in range(len(clients.h)) if j != k]
        h, y = torch.cat([clients.h[j] for j in rest]), torch.cat([clients.y[j] for j in rest])
        chosen = torch.arange(min(len(y), COMPARED)) * len(y) // min(len(y), COMPARED)
        own = slice(0, COMPARED)
        result = conditional_wasserstein_of_samples(
            clients.h[k][own].numpy(), clients.y[k][own].numpy(), h[chosen].numpy(), y[chosen].numpy()
        )
        rows.append({"client": k, "distance": result.distance, "left_out": result.left_out})
    return pd.DataFrame(rows)
