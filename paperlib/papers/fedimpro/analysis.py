"""Inversion of FedImpro's features (Figures 11 to 13).

It needs the final parameters of a run of FedImpro, so the run must be in a store, and reads its clients' images once.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.display import plots
from paperlib.methods.fedimpro import FedImpro
from paperlib.methods.math.gaussians import class_moments
from paperlib.quantities.inversion import invert, similarity
from paperlib.random_streams import torch_rng
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.runs.store import Run
from paperlib.workers import worker_pool


@dataclass
class Clients:
    """The clients' data in a run: images x, features h [n, D] at the cut, labels y, per client.

    theta, buffers: the final model. mu, s: [C, D], mean and spread of h by class, averaged over the clients that have
    the class; Eq. 6 and 7 converge to them.
    """

    method: FedImpro
    theta: Tensor
    buffers: Tensor
    x: list[Tensor]
    h: list[Tensor]
    y: list[Tensor]
    mu: Tensor
    s: Tensor


def clients_of(run: Run) -> Clients:
    """The clients' data in a run. Raises ValueError for a run of another method or without parameters."""
    e = run.experiment
    if e.method != "fedimpro":
        raise ValueError(f"the analysis is of a run of fedimpro, not of {e.method}")
    theta, buffers = run.parameters, run.buffers
    data = dataset_of(e)
    method, progress = prepare(e, data)
    assert isinstance(method, FedImpro)
    x, h, y = [], [], []
    zero = torch.zeros_like(progress.server["mu"])
    mu, s, holders, spreads = zero.clone(), zero.clone(), zero[:, :1].clone(), zero[:, :1].clone()
    for own in method.context.indices:
        images = normalise(data.train_images[own], data)
        with torch.no_grad():
            features = method.net(theta, images, stop=method.first, buffers=buffers).flatten(1)
        n, mean, variance = class_moments(features, data.train_labels[own], method.classes)
        mu += torch.where(n > 0, mean, zero)
        s += torch.where(n > 1, variance.sqrt().clamp(max=method.s_max or 0.0), zero)
        holders += n > 0
        spreads += n > 1
        x.append(images)
        h.append(features)
        y.append(data.train_labels[own])
    return Clients(method, theta, buffers, x, h, y, mu / holders.clamp(min=1), s / spreads.clamp(min=1))


@dataclass
class Attack:
    """Images [n, C, H, W] of n classes, to be rebuilt from features.

    labels: [n]. features: [n, D], of the images at the cut. mean_images: [n, C, H, W], mean of all images of a class.
    """

    clients: Clients
    originals: Tensor
    labels: Tensor
    features: Tensor
    mean_images: Tensor
    draw: torch.Generator
    steps: int

    def rebuild(self, target: Tensor) -> Tensor:
        """Images [n, C, H, W] whose features at the cut are close to target [n, D]."""
        method = self.clients.method
        shape = (self.originals.shape[1], self.originals.shape[2], self.originals.shape[3])
        with worker_pool(1):
            return invert(
                method.net, self.clients.theta, target.view(-1, *method.shape), method.first, shape, steps=self.steps,
                generator=self.draw, buffers=self.clients.buffers,
            ).detach()  # fmt: skip


def attack(run: Run, images: int = 8, steps: int = 300) -> Attack:
    """The first image of each of the first ``images`` classes, as an attacker of FedImpro's final model would."""
    clients = clients_of(run)
    x, h, y = torch.cat(clients.x), torch.cat(clients.h), torch.cat(clients.y)
    chosen = [int((y == c).nonzero()[0]) for c in range(min(images, clients.method.classes))]
    mean_images = torch.stack([x[y == c].mean(0) for c in y[chosen]])
    draw = torch_rng(run.experiment.seed, "inversion")
    return Attack(clients, x[chosen], y[chosen], h[chosen], mean_images, draw, steps)


def private_images(run: Run, images: int = 8) -> tuple[Figure, pd.DataFrame]:
    """Figure 11: the images themselves. The data frame has their classes."""
    case = attack(run, images)
    figure, _ = _pictures(case, {"original": case.originals})
    return figure, pd.DataFrame({"class": case.labels.tolist()})


def from_features(run: Run, images: int = 8, steps: int = 300) -> tuple[Figure, pd.DataFrame]:
    """Figure 12: images rebuilt from their own features; data as in `from_means`."""
    case = attack(run, images, steps)
    return _pictures(case, {"original": case.originals, "own feature": case.rebuild(case.features)})


def from_means(
    run: Run, images: int = 8, noise: tuple[float, ...] = (0.0, 0.01, 0.1, 0.5), steps: int = 300
) -> tuple[Figure, pd.DataFrame]:
    """Figure 13: images rebuilt from the shared mean features of their classes, beside the classes' mean images.

    noise: standard deviations of Gaussian noise on the mean. The data frame has the correlation of each rebuilt image,
    and of the mean image, with the original, from -1 to 1.
    """
    case = attack(run, images, steps)
    rebuilt, mean = {"original": case.originals, "mean image": case.mean_images}, case.clients.mu[case.labels]
    for sigma in noise:
        rebuilt[f"mean, noise {sigma:g}"] = case.rebuild(mean + sigma * torch.randn(mean.shape, generator=case.draw))
    return _pictures(case, rebuilt)


def _pictures(case: Attack, rows: dict[str, Tensor]) -> tuple[Figure, pd.DataFrame]:
    """A row of pictures per name, and the correlation of each row after the first with the originals."""
    values = [
        {"from": name, "class": label, "correlation": value}
        for name in list(rows)[1:]
        for label, value in zip(case.labels.tolist(), similarity(case.originals, rows[name]).tolist(), strict=True)
    ]
    columns = len(case.labels)
    with plots.style():
        figure, axes = plots.panels(len(rows) * columns, columns, (0.8, 0.8))
        for number, (name, pictures) in enumerate(rows.items()):
            for column, picture in enumerate(pictures):
                ax = axes[number * columns + column]
                pixels = picture.permute(1, 2, 0).double().numpy()
                low, high = np.quantile(pixels, (0.01, 0.99))
                ax.imshow(((pixels - low) / max(high - low, 1e-9)).clip(0, 1).squeeze(), cmap="gray")
                ax.set_xticks([])
                ax.set_yticks([])
                ax.grid(False)
                ax.spines[:].set_visible(False)
                if column == 0:
                    ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure, pd.DataFrame(values, columns=["from", "class", "correlation"])
