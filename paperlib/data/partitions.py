"""Partitions of the training samples among the clients.

Every partition is drawn on the CPU from the stream (seed, "partition"), so it is the same on every device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from paperlib import partition_files
from paperlib.checks import number, one_of, quote, whole
from paperlib.random_streams import rng

if TYPE_CHECKING:
    import pandas as pd

MAX_DRAWS = 20_000
# Most draws x classes x (clients + 50) of dirichlet_two_classes, whose draws take longest: five seconds.
MOST_WORK = 10_000_000
MOST_CLASSES = 100_000  # every client has a count per class


class NoDrawError(ValueError):
    """No draw of a random partition gave every client enough samples."""


class Partition(list[Tensor]):
    """One int64 index tensor [n_k] per client, into the training set whose labels are ``labels`` [N]."""

    def __init__(self, parts: list[Tensor], labels: Tensor):
        super().__init__(parts)
        self.labels = labels

    def counts(self) -> Tensor:
        """Samples per client and class, int64 [clients, C]."""
        classes = int(self.labels.max()) + 1
        return torch.stack([torch.bincount(self.labels[part], minlength=classes) for part in self])

    def describe(self) -> "pd.DataFrame":
        """Per client: samples, classes present, entropy of its labels (nats), count of each class."""
        import pandas as pd  # its import takes more time and memory than a small run

        counts = self.counts().numpy()
        shares = counts / np.maximum(counts.sum(1), 1)[:, None]
        entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
        columns = {"samples": counts.sum(1), "classes": (counts > 0).sum(1), "label_entropy": entropy}
        columns |= {f"class_{c}": column for c, column in enumerate(counts.T)}
        return pd.DataFrame(columns).rename_axis("client")


@dataclass(frozen=True)
class Request:
    """Arguments of a partition function: labels [N] as NumPy int64, number of classes, and the user's arguments."""

    labels: np.ndarray
    classes: int
    clients: int
    alpha: float
    min_samples: int
    writers: np.ndarray | None
    draws: int = MAX_DRAWS


@dataclass(frozen=True)
class Kind:
    """A named partition: its function, and whether it needs alpha."""

    draw: Callable[[Request, Generator], list[np.ndarray]]
    needs_alpha: bool


def partition(
    labels: Tensor,
    name: Any,
    *,
    clients: int,
    alpha: float | None = None,
    seed: int = 0,
    min_samples: int = 1,
    writers: Tensor | None = None,
    draws: int = MAX_DRAWS,
) -> Partition:
    """Divide samples with ``labels`` [N] among ``clients``; see `PARTITIONS` for the names.

    alpha: Dirichlet concentration, or number of classes per client. min_samples: size of the smallest client; Dirichlet
    draws are repeated until it is met, at most ``draws`` times. writers: [N], writer of each sample ("natural" only).
    Every sample goes to exactly one client, except that "natural" leaves out the writers that were not chosen. Instead
    of a name, a file or a list of indices per client is taken, as by `paperlib.partition_files.keep`.

    Raises ValueError if the request is impossible, NoDrawError (a ValueError) if no draw meets ``min_samples``; the
    sentence names the nearest feasible value.
    """
    kind = kind_of(name, alpha)
    _check_indices("labels", labels)
    if (most := int(labels.max())) >= MOST_CLASSES:
        raise ValueError(f"labels has the entry {most}, but must be classes from 0 to {MOST_CLASSES - 1}")
    if alpha is not None:
        number("alpha", alpha, above=0)
    whole("clients", clients, 1)
    whole("seed", seed, 0)
    whole("min_samples", min_samples, 0)
    if writers is not None:
        _check_indices("writers", writers)
        if len(writers) != len(labels):
            raise ValueError(f"writers has {len(writers)} entries, but must have one for each of {len(labels)} labels")
    if clients * max(min_samples, 1) > len(labels):
        raise ValueError(
            f"{clients} clients with at least {max(min_samples, 1)} samples each need more than the {len(labels)} "
            f"samples there are; at most {len(labels) // max(min_samples, 1)} clients are possible"
        )
    known, names = labels.cpu(), None if writers is None else writers.cpu().numpy()
    request = Request(known.numpy(), int(known.max()) + 1, clients, float(alpha or 0), min_samples, names, draws)
    parts = kind.draw(request, rng(seed, "partition"))
    smallest = min(len(part) for part in parts)
    if smallest < min_samples:
        raise ValueError(
            f"the partition {name} gives its smallest client {smallest} samples, below min_samples={min_samples}; "
            f"ask for min_samples <= {smallest}"
        )
    return Partition([torch.from_numpy(np.sort(part)).to(labels.device) for part in parts], known)


def kind_of(name: Any, alpha: float | None) -> Kind:
    """Return the partition with a name of `PARTITIONS`, or one that is handed in or was.

    Raises ValueError for another name, and for one that needs an alpha and has none.
    """
    if partition_files.handed_in(name):
        name, _ = partition_files.keep(name)
    if not str(name).startswith(partition_files.GIVEN):
        one_of("partition", name, PARTITIONS)
        if alpha is None and PARTITIONS[name].needs_alpha:
            raise ValueError(f"alpha is None, but the partition {name} needs a number above 0")
        return PARTITIONS[name]

    def read(request: Request, stream: Generator) -> list[np.ndarray]:
        parts = partition_files.kept(name, request.labels)
        if len(parts) != request.clients:
            raise ValueError(f"clients is {request.clients}, but the partition has {len(parts)}: give that number")
        return parts

    return Kind(read, False)


def _check_indices(name: str, values: Tensor) -> None:
    """Raise ValueError unless the values are whole numbers from 0, one per sample."""
    if not isinstance(values, Tensor):
        raise ValueError(f"{name} is {quote(values)}, but must be a tensor of whole numbers [N]")
    kind = values.dtype
    if values.ndim != 1 or kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise ValueError(f"{name} is {kind} of shape {list(values.shape)}, but must be whole numbers of shape [N]")
    if not len(values):
        raise ValueError(f"{name} is empty, but there must be at least one sample")
    if int(values.min()) < 0:
        raise ValueError(f"{name} has the entry {int(values.min())}, but must be whole numbers of at least 0")


def thin(part: Tensor, labels: Tensor, share: float) -> Tensor:
    """A share of a client's samples [n], rounded up, spread evenly over its classes.  [n] -> [ceil(share n)]"""
    kept = math.ceil(share * len(part) - 1e-9)
    by_class = part[torch.argsort(labels[part], stable=True)]
    positions = torch.arange(kept, device=part.device) * len(part) // max(kept, 1)
    return by_class[positions].sort().values


def _iid(request: Request, stream: Generator) -> list[np.ndarray]:
    """All samples shuffled, cut into parts whose sizes differ by at most one."""
    return np.array_split(stream.permutation(len(request.labels)), request.clients)


def _quantity(request: Request, stream: Generator) -> list[np.ndarray]:
    """Shares q ~ Dir(alpha) of all samples, whatever their labels, so that clients differ in size alone.

    Li et al. 2022, "Federated learning on non-IID data silos: An experimental study" (NIID-Bench), where alpha is beta.
    Its public code draws until the smallest client has 10 samples: min_samples.
    """
    return _draw_dirichlet(replace(request, labels=np.zeros_like(request.labels), classes=1), stream)


def _dirichlet_two_classes(request: Request, stream: Generator) -> list[np.ndarray]:
    """Capped, and every client has at least two classes: by exchanges within a draw, then by redraws (FedNH's code).

    That code stops after three draws and may leave clients with one class.
    """
    if request.classes < 2 or 2 * request.clients > len(request.labels):
        raise ValueError(
            f"dirichlet_two_classes gives each of {request.clients} clients samples of two classes, which "
            f"{len(request.labels)} samples of {request.classes} classes do not allow; ask for two classes or more and "
            f"at most {len(request.labels) // 2} clients"
        )
    possible = MOST_WORK // (request.classes * (request.clients + 50))
    request = replace(request, draws=max(1, min(request.draws, possible)))
    return _draw_dirichlet(request, stream, capped=True, two_classes=True)


def _draw_dirichlet(
    request: Request, stream: Generator, capped: bool = False, two_classes: bool = False
) -> list[np.ndarray]:
    """Per class, shares p ~ Dir(alpha) over the clients; all classes are redrawn until every client has min_samples.

    capped: a client that already has its fair share n/N gets nothing of the following classes (the rule of the papers'
    code). two_classes: every client has at least two classes. Redraws only need the counts, so samples are shuffled
    once, for the final draw.
    """
    sizes = np.bincount(request.labels, minlength=request.classes)
    best = -1
    for _ in range(request.draws):
        counts = _dirichlet_counts(sizes, request, stream, capped, two_classes)
        if two_classes and (counts > 0).sum(0).min() < 2:
            continue
        smallest = int(counts.sum(0).min())
        best = max(best, smallest)
        if smallest >= request.min_samples:
            return _deal(request.labels, counts, stream)
    if best < 0:
        raise NoDrawError(
            f"none of {request.draws} Dirichlet({request.alpha:g}) draws over {request.clients} clients gave each two "
            f"classes; ask for fewer clients or a larger alpha"
        )
    raise NoDrawError(
        f"none of {request.draws} Dirichlet({request.alpha:g}) draws over {request.clients} clients gave each at least "
        f"min_samples={request.min_samples}; the best one reached {best}: ask for min_samples <= {best}, fewer "
        f"clients, or a larger alpha"
    )


def _dirichlet_counts(
    sizes: np.ndarray, request: Request, stream: Generator, capped: bool, two_classes: bool = False
) -> np.ndarray:
    """Samples per class and client, int64 [C, clients]."""
    shares = stream.dirichlet(np.full(request.clients, request.alpha), len(sizes))
    if not capped:
        return _divided(shares, sizes[:, None])
    fair = sizes.sum() / request.clients
    counts = np.zeros((len(sizes), request.clients), dtype=np.int64)
    held = np.zeros(request.clients)
    for c, (p, n) in enumerate(zip(shares, sizes, strict=True)):
        p = p * (held < fair)
        if p.sum() == 0:  # every positive share fell on a full client
            p = (held < fair).astype(float)
        counts[c] = _divided(p / p.sum(), n)
        if two_classes and c > 1:
            _exchange(counts, c)
        held += counts[c]
    return counts


def _exchange(counts: np.ndarray, c: int) -> None:
    """The first client with at most one class before class c exchanges its samples of c with the last client.

    The second such client exchanges with the last but one, and so on. counts: int64 [C, clients], changed in place.
    """
    poor: list[int] = np.flatnonzero((counts[:c] > 0).sum(0) <= 1).tolist()
    row = counts[c].tolist()
    for client, other in zip(poor, reversed(range(len(row))), strict=False):
        row[client], row[other] = row[other], row[client]
    counts[c] = row


def _divided(p: np.ndarray, n: np.ndarray) -> np.ndarray:
    """n samples [...] cut by shares p [..., clients], rounded down at every cut, int64 [..., clients]."""
    cuts = np.floor(np.cumsum(p, -1) * n).astype(np.int64)
    cuts[..., -1:] = n
    return np.diff(cuts, prepend=0)


def _classes_per_client(request: Request, stream: Generator) -> list[np.ndarray]:
    """Client i has class i mod C and alpha - 1 others; a class is divided evenly among its clients (FedGPS)."""
    each = int(request.alpha)
    if each != request.alpha or not 1 <= each <= request.classes:
        raise ValueError(
            f"alpha is {request.alpha:g} classes per client; choose a whole number from 1 to {request.classes}"
        )
    holds = np.zeros((request.classes, request.clients), dtype=bool)
    for client in range(request.clients):
        first = client % request.classes
        others = np.delete(np.arange(request.classes), first)
        holds[[first, *stream.choice(others, each - 1, replace=False)], client] = True
    counts = np.zeros(holds.shape, dtype=np.int64)
    for c, n in enumerate(np.bincount(request.labels, minlength=request.classes)):
        holders = np.flatnonzero(holds[c])
        if len(holders) == 0:
            raise ValueError(
                f"no client holds class {c}: {request.clients} clients with {each} classes each cannot be sure to "
                f"cover {request.classes} classes; ask for at least {request.classes} clients"
            )
        counts[c, holders] = [len(part) for part in np.array_split(np.arange(n), len(holders))]
    return _deal(request.labels, counts, stream)


def _two_classes(request: Request, stream: Generator) -> list[np.ndarray]:
    """Client k owns all samples of classes 2k and 2k + 1 (FedHydra's 2c/c)."""
    if request.classes % 2:
        raise ValueError(f"two_classes gives each client two classes, so it cannot divide {request.classes} of them")
    if 2 * request.clients != request.classes:
        raise ValueError(
            f"two_classes gives each client two of {request.classes} classes, so it needs {request.classes // 2} "
            f"clients, not {request.clients}"
        )
    return [np.flatnonzero(request.labels // 2 == client) for client in range(request.clients)]


def _natural(request: Request, stream: Generator) -> list[np.ndarray]:
    """One writer is one client; writers are chosen at random among those with at least min_samples samples."""
    if request.writers is None:
        raise ValueError(
            "the partition natural needs a data set with writers (femnist, or a packed set with train_writers)"
        )
    names, samples = np.unique(request.writers, return_counts=True)
    names = names[samples >= request.min_samples]
    if len(names) < request.clients:
        raise ValueError(
            f"{request.clients} clients are asked for, but only {len(names)} writers have at least "
            f"{request.min_samples} samples; ask for at most {len(names)} clients"
        )
    chosen = np.sort(stream.choice(names, request.clients, replace=False))
    return [np.flatnonzero(request.writers == writer) for writer in chosen]


def _deal(labels: np.ndarray, counts: np.ndarray, stream: Generator) -> list[np.ndarray]:
    """Give every client counts[c, client] samples of each class c, drawn without replacement."""
    parts: list[list[np.ndarray]] = [[] for _ in range(counts.shape[1])]
    for c, row in enumerate(counts):
        shuffled = stream.permutation(np.flatnonzero(labels == c))
        for client, samples in enumerate(np.split(shuffled, np.cumsum(row)[:-1])):
            parts[client].append(samples)
    return [np.concatenate(part) for part in parts]


PARTITIONS: dict[str, Kind] = {
    "iid": Kind(_iid, False),
    "dirichlet": Kind(_draw_dirichlet, True),
    "dirichlet_capped": Kind(partial(_draw_dirichlet, capped=True), True),
    "dirichlet_two_classes": Kind(_dirichlet_two_classes, True),
    "classes_per_client": Kind(_classes_per_client, True),
    "two_classes": Kind(_two_classes, False),
    "natural": Kind(_natural, False),
    "quantity": Kind(_quantity, True),
}
