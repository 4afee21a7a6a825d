"""Methods that treat the classifier separately, one loop each."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn.functional import cross_entropy, normalize, one_hot

from paperlib.random_streams import rng, torch_rng
from tests.references.federation import Federation, split
from tests.references.local import of_loss
from tests.references.modules import SphereHead
from tests.references.servers import Compared


def fedrod(fed: Federation, gamma: float) -> Compared:
    """Chen and Chao 2022: balanced softmax for the model, and a private head for each client. After w: the heads."""
    w, heads = fed.w0, {}
    for t, cohort in fed.rounds():
        models = []
        for k in cohort:
            prior = gamma * fed.counts[k].double().log()  # minus infinity for classes without samples
            if k not in heads:
                heads[k] = nn.Linear(fed.features, fed.classes).double()
                heads[k].load_state_dict({n: torch.zeros_like(p) for n, p in heads[k].named_parameters()})
            head = heads[k]
            own = torch.optim.SGD(head.parameters(), fed.lr(t), fed.e.momentum, weight_decay=fed.e.weight_decay)

            def gradient(x: Tensor, y: Tensor, prior: Tensor = prior, head: nn.Linear = head, own=own) -> Tensor:
                z = fed.model.body(x).detach()
                own.zero_grad()
                cross_entropy(fed.model.head(z).detach() + head(z), y).backward()
                own.step()
                return fed.gradient(x, y, lambda x, y: cross_entropy(fed.model(x) + prior, y))

            models.append(fed.train(t, k, w, gradient))
        w = fed.mean(models)
        yield w, *(torch.cat([heads[k].weight, heads[k].bias[:, None]], 1).detach().clone() for k in sorted(heads))


def fednh(fed: Federation, rho: float) -> Compared:
    """Dai et al. 2023, Algorithm 1; s is trained with the body."""
    fed.model.head = SphereHead(fed.features, fed.classes, None).double()
    w = fed.w0.clone()
    for t, cohort in fed.rounds():
        models, sums = [], torch.zeros(fed.classes, fed.model.head.weight.shape[1], dtype=torch.float64)
        for k in cohort:
            models.append(fed.train(t, k, w))
            x, y = fed.samples(k)
            z = normalize(fed.evaluated(lambda model: model.body, models[-1], x, fed.trained_buffers[-1]), dim=1)
            for c in y.unique():
                of_class = z[y == c]
                sums[c] += len(of_class) * normalize(of_class.mean(0), dim=0)
        new = fed.mean(models)
        old = split(w, fed.model)["head.weight"]
        moved = normalize(rho * old + (1 - rho) * normalize(sums, dim=1), dim=1)
        split(new, fed.model)["head.weight"].copy_(torch.where(sums.norm(dim=1, keepdim=True) > 0, moved, old))
        w = new
        yield (w,)


def spherefed(fed: Federation, epsilon: float) -> Compared:
    """Dong et al. 2022: squares on the sphere, and the ridge solution on all clients' features at the end."""
    fed.model.head = SphereHead(fed.features, fed.classes, 1.0).double()

    def squares(x: Tensor, y: Tensor) -> Tensor:
        return (fed.model(x) - one_hot(y, fed.classes)).square().sum(1).mean()

    w, local = fed.w0, of_loss(fed, lambda t, k, w: squares)
    for t, cohort in fed.rounds():
        w = fed.mean([fed.train(t, k, w, local(t, k, w)) for k in cohort])
        fed.end_round()
        x, y = (torch.cat(parts) for parts in zip(*map(fed.samples, range(fed.e.clients)), strict=True))
        u = normalize(fed.evaluated(lambda model: model.body, w, x, fed.buffers), dim=1)
        # least squares of the samples and of sqrt(epsilon) times every entry of the solution
        rows = torch.cat([u, epsilon**0.5 * torch.eye(u.shape[1], dtype=u.dtype)])
        goal = torch.cat([one_hot(y, fed.classes).double(), torch.zeros(u.shape[1], fed.classes, dtype=u.dtype)])
        tested = w.clone()
        split(tested, fed.model)["head.weight"].copy_(torch.linalg.lstsq(rows, goal).solution.T)
        yield w, tested


def ccvr(
    fed: Federation, m: int, epochs: int, lr: float, momentum: float, weight_decay: float, epsilon: float,
    calibrate_on: str,
) -> Compared:  # fmt: skip
    """Luo et al. 2021, Algorithm 1, with the Gaussians of all clients. Last: the calibrated model."""
    w = fed.w0
    for t, cohort in fed.rounds():
        w = fed.mean([fed.train(t, k, w) for k in cohort])
        fed.end_round()
        generator = torch_rng(fed.e.seed, "virtual features")
        x, y = (torch.cat(parts) for parts in zip(*map(fed.samples, range(fed.e.clients)), strict=True))
        z = fed.evaluated(lambda model: model.body, w, x, fed.buffers)
        d = z.shape[1]
        noise = torch.randn(fed.classes, m, d, dtype=z.dtype, generator=generator)
        drawn = []
        for c in range(fed.classes):
            covariance = torch.cov(z[y == c].T) + epsilon * torch.eye(d, dtype=z.dtype)
            gaussian = MultivariateNormal(z[y == c].mean(0), covariance)
            drawn.append(gaussian.loc + noise[c] @ gaussian.scale_tril.T)
        fed.put(w)
        head = fed.model.head
        sgd = torch.optim.SGD(head.parameters(), lr, momentum, weight_decay=weight_decay)
        retrain(head, sgd, torch.cat(drawn), epochs, fed.e.batch_size, generator)
        yield w, fed.w


def retrain(
    head: nn.Module, sgd: torch.optim.SGD, z: Tensor, epochs: int, batch_size: int, generator: torch.Generator
) -> None:
    """Train a head on features z [C m, d], m of each class in turn."""
    classes = len(next(head.parameters()))
    y = torch.arange(classes).repeat_interleave(len(z) // classes)
    for _ in range(epochs):
        for part in torch.randperm(len(z), generator=generator).split(batch_size):
            sgd.zero_grad()
            cross_entropy(head(z[part]), y[part]).backward()
            sgd.step()


def creff(
    fed: Federation, m: int, draws: int, draw_size: int, match_steps: int, match_lr: float, refit_epochs: int,
    refit_lr: float,
) -> Iterator[tuple[Tensor, ...]]:  # fmt: skip
    """Shang et al. 2022, Algorithm 1. After w: the model with the retrained classifier."""
    w, seed, d = fed.w0, fed.e.seed, fed.features
    head = nn.Linear(d, fed.classes).double()
    fed.put(w)
    head.load_state_dict(fed.model.head.state_dict())
    features = torch.randn(fed.classes, m, d, generator=torch_rng(seed, "federated features")).double()

    def head_gradient(z: Tensor, c: int, create_graph: bool = False) -> tuple[Tensor, ...]:
        loss = cross_entropy(head(z), torch.full((len(z),), c))
        return torch.autograd.grad(loss, list(head.parameters()), create_graph=create_graph)

    def row_distance(a: Tensor, b: Tensor) -> Tensor:
        return 1 - (a * b).sum() / (a.norm() * b.norm() + 1e-6)

    for t, cohort in fed.rounds():
        sent: dict[int, list[tuple[Tensor, ...]]] = {}
        for k in cohort:
            stream = rng(seed, "draws per class", t, k)
            for c in torch.nonzero(fed.counts[k])[:, 0].tolist():
                x = fed.draws_of_class(k, c, draws, draw_size, stream)
                z = fed.evaluated(lambda model: model.body, w, x, fed.buffers)
                sent.setdefault(c, []).append(head_gradient(z, c))
        w = fed.mean([fed.train(t, k, w) for k in cohort])
        for c, gradients in sent.items():
            weight, bias = (sum(tensors) / len(gradients) for tensors in zip(*gradients, strict=True))
            z = features[c].clone()
            for _ in range(match_steps):
                z.requires_grad_()
                g_weight, g_bias = head_gradient(z, c, create_graph=True)
                rows = [row_distance(a, b) for a, b in zip(g_weight, weight, strict=True)]
                g = torch.autograd.grad(torch.stack(rows).sum() + row_distance(g_bias, bias), z)[0]
                z = z.detach() - match_lr * g
            features[c] = z
        generator = torch_rng(seed, "classifier retraining")
        start = torch.empty(fed.classes, d + 1, dtype=torch.float64).uniform_(-1, 1, generator=generator) / d**0.5
        head = nn.Linear(d, fed.classes).double()
        head.load_state_dict({"weight": start[:, :d], "bias": start[:, d]})
        sgd = torch.optim.SGD(head.parameters(), refit_lr)
        retrain(head, sgd, features.flatten(0, 1), refit_epochs, draw_size, generator)
        fed.put(w)
        fed.model.head.load_state_dict(head.state_dict())
        yield w, fed.w
