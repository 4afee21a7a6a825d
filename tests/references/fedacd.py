"""FedACD as one loop, sections 3 and 4 of its paper, and mixup within a mini-batch."""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import softmax

from tests.references.federation import Federation
from tests.references.servers import Compared

FLOOR, SLACK = 1e-8, 1e-5  # of the entries of P; 1 - tau of the template Q


def fedacd(
    fed: Federation, lambda_: float, mixup: float, delta_miss: float, flatten: bool, adjust: bool, score: bool,
    p_source: str, kl_reduction: str,
) -> Compared:  # fmt: skip
    """Eq. 6 to 11."""
    w = fed.w0
    for t, cohort in fed.rounds():
        models, scores = [], []
        for k in cohort:
            client = Client(fed, t, k, mixup, p_source)

            def loss(x: Tensor, y: Tensor, client: "Client" = client) -> Tensor:
                x, pairs = client.mixed(x, y)
                f = fed.model(x)
                client.note(f, pairs)
                total = torch.zeros((), dtype=f.dtype)
                for i in range(len(y)):
                    for rho, labels in pairs:
                        c = int(labels[i])
                        others = [j for j in range(fed.classes) if j != c]
                        ratio = client.ratios(c, delta_miss)[others] if adjust else torch.ones(len(others))
                        total = total + lambda_ * rho * (1 + (ratio * (f[i, others] - f[i, c]).exp()).sum()).log()
                    if flatten:
                        total = total + flatness(f[i], {int(labels[i]) for _, labels in pairs})
                return total / len(y)

            models.append(fed.train(t, k, w, partial(fed.gradient, loss=loss), before_epoch=client.begin_epoch))
            client.begin_epoch()
            scores.append(client.score(kl_reduction) if score else 1.0)
        total = sum(p * v for p, v in zip(fed.p, scores, strict=True))
        fed.p = [p * v / total for p, v in zip(fed.p, scores, strict=True)]
        w = fed.mean(models)
        yield (w,)


def flatness(f: Tensor, true: set[int]) -> Tensor:
    """Eq. 7 for one output f [C]: KL(p || q), q being p with the mass of the wrong classes spread evenly."""
    p = softmax(f, 0)
    wrong = [j for j in range(len(f)) if j not in true]
    q = p.clone()
    q[wrong] = p[wrong].sum() / len(wrong)
    return (p * (p / q).log()).sum()


class Client:
    """One client's matrix P [C, C], mean softmax output per true class, and its draws for mixup."""

    def __init__(self, fed: Federation, t: int, k: int, mixup: float, p_source: str):
        self.fed, self.k, self.mixup, self.running = fed, k, mixup, p_source == "running"
        self.stream, self.generator = fed.stream(t, k), fed.generator(t, k)
        self.sums = self.weights = torch.zeros(0, dtype=torch.float64)

    def mixed(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[tuple[float, Tensor]]]:
        """The training images and their weighted labels after mixup."""
        if not self.mixup:
            return x, [(1.0, y)]
        rho = self.stream.beta(self.mixup, self.mixup)
        odds = 1 / self.fed.counts[self.k][y].float()
        b = torch.multinomial(odds, len(y), replacement=True, generator=self.generator)
        return rho * x + (1 - rho) * x[b], [(rho, y), (1 - rho, y[b])]

    def begin_epoch(self) -> None:
        """Recompute P: from the current model on the client's images, or from the outputs of the previous epoch."""
        fed = self.fed
        if not self.running or not len(self.sums):
            x, y = fed.samples(self.k)
            out = softmax(fed.evaluated(lambda model: model, fed.w, x, list(fed.model.buffers())), 1)
            rows = [out[y == c].mean(0) if (y == c).any() else torch.zeros(fed.classes) for c in range(fed.classes)]
            self.p = torch.stack([row.double() for row in rows])
        else:
            self.p = self.sums / self.weights[:, None]
        self.sums = torch.zeros(fed.classes, fed.classes, dtype=torch.float64)
        self.weights = torch.zeros(fed.classes, dtype=torch.float64)

    def note(self, f: Tensor, pairs: list[tuple[float, Tensor]]) -> None:
        """Add outputs f [B, C] to the sums for the next epoch's P."""
        for rho, labels in pairs:
            for out, c in zip(softmax(f.detach(), 1), labels, strict=True):
                self.sums[c] += rho * out
                self.weights[c] += rho

    def ratios(self, c: int, delta_miss: float) -> Tensor:
        """Delta_ci = P_ci / P_ic of Eq. 8, delta_miss for classes i that the client does not have, [C]."""
        ratios = self.p[c].clamp(min=FLOOR) / self.p[:, c].clamp(min=FLOOR)
        return torch.where(self.fed.counts[self.k] > 0, ratios, delta_miss)

    def score(self, reduction: str) -> float:
        """V = sigmoid(1 / KL(P || Q)) of Eq. 10."""
        kl, classes = [], self.fed.classes
        for c in torch.nonzero(self.fed.counts[self.k])[:, 0].tolist():
            q = [1 - SLACK if j == c else SLACK / (classes - 1) for j in range(classes)]
            row = (self.p[c] / self.p[c].sum()).tolist()
            kl.append(sum(a * math.log(a / b) for a, b in zip(row, q, strict=True) if a))
        value = sum(kl) / len(kl) if reduction == "mean" else sum(kl)
        return 1 / (1 + math.exp(-1 / value))
