"""The inputs of a plain loop: a module, the cohorts, their batches and random draws, and local momentum SGD."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

from paperlib.data.batches import augmentation, draw_epoch, make_batch, normalise
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import sampled_clients
from paperlib.methods import FedAvg
from paperlib.random_streams import rng, torch_rng
from tests.batches import epoch
from tests.references.modules import Plain, plain_network

Loss = Callable[[Tensor, Tensor], Tensor]  # (x [B, ...], y [B]) -> scalar
Gradient = Callable[[Tensor, Tensor], Tensor]  # (x, y) -> [P]
Local = Callable[[int, int, Tensor], Gradient]  # (round t, client k, model w^t [P]) -> the client's descent direction


class Federation:
    """One run for a reference loop, independent of the method.

    model: the network as a module in float64; ``w`` are its parameters. w0: [P], before round 1. features: d, the
    length of the input of its head. n: samples per client. counts: int64 [clients, C]. p: weights of the sampled
    clients in this round. buffers: BatchNorm's statistics. trained_buffers: those of the clients of this round.
    """

    def __init__(self, method: FedAvg, progress: Progress):
        self.context, self.e = method.context, method.context.experiment
        self.data, self.n, self.counts = self.context.data, self.context.sizes.tolist(), self.context.counts
        self.classes, self.features = self.data.num_classes, method.net.feature_size
        self.model = plain_network(self.e.model, self.data.shape, method.net.outputs, self.e.width)
        self.w0 = progress.theta.clone()
        self.buffers = [b.clone() for b in self.model.buffers()]
        self.p: list[float] = []
        self.trained_buffers: list[list[Tensor]] = []
        self.optimizers: dict[int, dict[str, Any]] = {}

    # -- a round

    def rounds(self) -> Iterator[tuple[int, list[int]]]:
        """Every round t with its cohort; at its end the BatchNorm statistics are averaged."""
        for t in range(1, self.e.rounds + 1):
            cohort, self.trained_buffers = sampled_clients(self.e, t), []
            total = sum(self.n[k] for k in cohort)
            self.p = [self.n[k] / total if self.e.weighting == "size" else 1 / len(cohort) for k in cohort]
            yield t, cohort

    def end_round(self) -> None:
        """The statistics of the clients of this round, averaged with the weights p."""
        columns = zip(*self.trained_buffers, strict=True)
        self.buffers = [self.mean(column) for column in columns]

    def mean(self, vectors: Iterable[Tensor]) -> Tensor:
        """sum_k p_k v_k over the cohort."""
        return torch.stack([p * v for p, v in zip(self.p, vectors, strict=True)]).sum(0)

    # -- a client

    @property
    def w(self) -> Tensor:
        """The model's parameters, a copy [P]."""
        return parameters_to_vector(self.model.parameters()).detach().clone()

    def put(self, w: Tensor, buffers: Iterable[Tensor] | None = None) -> None:
        """Set the model's parameters to w [P], and its statistics if given."""
        vector_to_parameters(w.clone(), self.model.parameters())
        for mine, given in zip(self.model.buffers(), buffers or (), strict=buffers is not None):
            mine.copy_(given)

    def lr(self, t: int) -> float:
        """The clients' learning rate in round t."""
        return self.e.lr * self.e.lr_decay ** (t - 1)

    def steps(self, k: int) -> int:
        """Local steps of client k in a round."""
        return self.e.local_steps or self.e.local_epochs * -(-self.n[k] // self.e.batch_size)

    def weighted(self, gradients: Sequence[Tensor]) -> Tensor:
        """Mean [P] of the gradients of a client's steps, each weighted by how far momentum lets it move the client."""
        rho, K = self.e.momentum, len(gradients)
        weights = [sum(rho**i for i in range(K - j)) for j in range(K)]
        return torch.stack([a * g for a, g in zip(weights, gradients, strict=True)]).sum(0) / sum(weights)

    def epochs(self, t: int, k: int) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
        """The batches (x, y) of each local epoch, of which the last may end early."""
        stream, left = rng(self.e.seed, "batches", t, k), self.steps(k)
        while left > 0:
            drawn = list(epoch(self.data, self.context.indices[k], self.e.batch_size, self.e.augment, stream))
            yield ((x.double(), y) for x, y in drawn[:left])
            left -= len(drawn)

    def gradient(self, x: Tensor, y: Tensor, loss: Loss | None = None, count: bool = True) -> Tensor:
        """Gradient [P] of a loss, default the cross-entropy; 0 for a parameter that is not trained.

        count: whether to update BatchNorm's statistics.
        """
        before = [b.clone() for b in self.model.buffers()]
        self.model.zero_grad()
        (loss or (lambda x, y: cross_entropy(self.model(x), y)))(x, y).backward()
        if not count:
            self.put(self.w, before)
        tensors = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        return parameters_to_vector(tensors).clone()

    def train(
        self,
        t: int,
        k: int,
        w: Tensor,
        gradient: Gradient | None = None,
        after_step: Callable[[], None] | None = None,
        before_epoch: Callable[[], None] | None = None,
    ) -> Tensor:
        """The model [P] of client k after its local epochs in round t from w [P], with `torch.optim.SGD`.

        gradient: replaces the gradient of the loss.
        """
        self.put(w, self.buffers)
        self.model.train()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        sgd = torch.optim.SGD(trained, self.lr(t), self.e.momentum, weight_decay=self.e.weight_decay)
        if self.e.momentum_buffer == "keep" and k in self.optimizers:
            sgd.load_state_dict(self.optimizers[k])
            sgd.param_groups[0]["lr"] = self.lr(t)
        for batches in self.epochs(t, k):
            if before_epoch:
                before_epoch()
            for x, y in batches:
                vector_to_gradients((gradient or self.gradient)(x, y), self.model)
                if self.e.clip is not None:
                    clip_grad_norm_(trained, self.e.clip)
                sgd.step()
                if after_step:
                    after_step()
        self.optimizers[k] = copy.deepcopy(sgd.state_dict())
        self.trained_buffers.append([b.clone() for b in self.model.buffers()])
        return self.w

    # -- passes beside training

    @torch.no_grad()
    def evaluated(self, part: Callable[[Plain], nn.Module], w: Tensor, x: Tensor, buffers: Iterable[Tensor]) -> Tensor:
        """Output of a part of the model, with parameters w [P] and these statistics, in evaluation mode."""
        other = copy.deepcopy(self.model).eval()
        vector_to_parameters(w.clone(), other.parameters())
        for mine, given in zip(other.buffers(), buffers, strict=True):
            mine.copy_(given)
        return part(other)(x)

    def samples(self, k: int) -> tuple[Tensor, Tensor]:
        """All training samples of client k, not augmented."""
        chosen = self.context.indices[k]
        return normalise(self.data.train_images[chosen], self.data).double(), self.data.train_labels[chosen]

    def draws_of_class(self, k: int, c: int, draws: int, size: int, stream: Generator) -> Tensor:
        """``draws`` batches of up to ``size`` augmented images of class c of client k."""
        how, own = augmentation(self.e.augment), self.context.indices[k]
        own = own[self.data.train_labels[own] == c]
        columns = torch.cat([draw_epoch(self.data, own, how, stream)[:, :size] for _ in range(draws)], 1)
        return make_batch(self.data, columns, how)[0].double()

    def generator(self, t: int, k: int) -> torch.Generator:
        """The stream for tensors of client k in round t."""
        return torch_rng(self.e.seed, "device draws", t, k)

    def stream(self, t: int, k: int) -> Generator:
        """The stream for single numbers of client k in round t."""
        return rng(self.e.seed, "host draws", t, k)


def average(tensors: Iterable[Tensor]) -> Tensor:
    """The unweighted mean."""
    return torch.stack(list(tensors)).mean(0)


def vector_to_gradients(g: Tensor, model: nn.Module) -> None:
    """Set the gradients of the model's trained parameters to g [P]."""
    start = 0
    for p in model.parameters():
        if p.requires_grad:
            p.grad = g[start : start + p.numel()].view_as(p).clone()
        start += p.numel()


def split(vector: Tensor, model: nn.Module) -> dict[str, Tensor]:
    """Views of a vector [P], one per tensor of the model, by name."""
    named = list(model.named_parameters())
    parts = vector.split([p.numel() for _, p in named])
    return {name: part.view_as(p) for (name, p), part in zip(named, parts, strict=True)}
