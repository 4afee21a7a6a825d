"""The classifier by itself: taken out of a network and put back, refitted to features, its gradients on features."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from paperlib.federated.context import Optimizer
from paperlib.networks import Network
from paperlib.random_streams import draw

EPSILON = 1e-6  # added to the product of two norms


def matrix_of(net: Network, theta: Tensor) -> Tensor:
    """The linear classifier in theta [P] as one matrix [C, d + 1] with the bias last, or [C, d] where it has none."""
    parts = net.split(theta)
    weight, bias = parts["classifier.weight"], parts.get("classifier.bias")
    return weight if bias is None else torch.cat([weight, bias[:, None]], 1)


def with_matrix(net: Network, theta: Tensor, matrix: Tensor) -> Tensor:
    """theta [P] with another linear classifier, as `matrix_of` gives it; theta itself stays as it is."""
    theta = theta.clone()
    parts = net.split(theta)
    weight, bias = parts["classifier.weight"], parts.get("classifier.bias")
    weight.copy_(matrix[:, : weight.shape[1]])
    if bias is not None:
        bias.copy_(matrix[:, -1])
    return theta


def extended(z: Tensor, matrix: Tensor) -> Tensor:
    """Features z [..., d] with a 1 for the bias, where the classifier's matrix has one: ``extended(z, w) @ w.mT``."""
    return pad(z, (0, 1), value=1.0) if matrix.shape[-1] > z.shape[-1] else z


def refit(
    matrix: Tensor, z: Tensor, y: Tensor, generator: torch.Generator, epochs: int, batch_size: int, optimizer: Optimizer
) -> Tensor:
    """The classifier [C, w] after SGD on the mean cross-entropy of features z [n, d] of classes y [n], from ``matrix``.

    generator: draws the order of every epoch.
    """
    x, target = extended(z, matrix), one_hot(y, len(matrix)).to(z)
    matrix, buffer = matrix.clone(), optimizer.buffer
    for _ in range(epochs):
        order = draw(lambda: torch.randperm(len(x), generator=generator), x.device)
        for part, goal in zip(x[order].split(batch_size), target[order].split(batch_size), strict=True):
            r = (part @ matrix.mT).softmax(1).sub_(goal)  # gradient of the loss in the logits
            buffer = torch.addmm(buffer, r.mT, part, beta=optimizer.momentum, alpha=1 / len(part))
            optimizer.descend(matrix, buffer.add_(matrix, alpha=optimizer.weight_decay))
    return matrix


def class_gradients(phi: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """Gradient [K, C, w] in phi [C, w] of the mean cross-entropy of features z [K, n, d], K sets of one class y [K]."""
    x = extended(z, phi)
    return ((x @ phi.mT).softmax(-1) - one_hot(y, len(phi))[:, None]).mT @ x / x.shape[1]


def mismatch(g: Tensor, target: Tensor, d: int) -> Tensor:
    """Sum of 1 - cosine over the rows of gradients [K, C, w]: d entries per output, and all biases (CReFF, Eq. 6)."""

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return (1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + EPSILON)).sum()

    rows = distance(g[..., :d], target[..., :d])
    return rows + distance(g[..., d], target[..., d]) if g.shape[-1] > d else rows
