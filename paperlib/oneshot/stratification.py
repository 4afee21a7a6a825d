"""Model stratification: scores how well each client knows each class, by the loss of a generator.

FedHydra, Algorithm 2. For every client k and class j a new generator learns for T_G steps to make images that the
client assigns to class j. The more its loss falls, relative to its minimum, the better the client knows the class.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from paperlib.networks import Network
from paperlib.oneshot.ensemble import Ensemble, Model

BETAS = (0.5, 0.999)  # of Adam for a generator: DENSE's; FedHydra states none

# Lower bound of the minimum. Above 1e-8 a client with one class would lose it: its loss is tiny for any image.
FLOOR = 1e-12
FAINT = 1e-4

Start = Callable[[int, int], tuple[Tensor, Tensor]]
Inputs = Callable[[Tensor, Tensor], Tensor]


def traces(ensemble: Ensemble, inputs: Inputs, start: Start, steps: int, lr: float = 1e-3) -> Tensor:
    """Losses of all clients' generators, float64 [m, c, T_G] in nats; see `trace`.

    start: (client, class) -> parameters [P] of its generator and latent vectors [B, n], on the clients' device.
    A GPU trains the generators of one client at once; a CPU is faster with one after the other.
    """
    classes = range(ensemble.classes)
    together = 1 if ensemble.models[0].theta.device.type == "cpu" else len(classes)
    losses = []
    for k, model in enumerate(ensemble.models):
        for first in classes[::together]:
            chosen = classes[first : first + together]
            thetas, latents = (torch.stack(part) for part in zip(*(start(k, j) for j in chosen), strict=True))
            y = torch.tensor(chosen, device=thetas.device)
            losses.append(trace(model, inputs, thetas, latents, y, steps, lr))
    return torch.cat(losses).view(len(ensemble.models), len(classes), steps)


def trace(model: Model, inputs: Inputs, thetas: Tensor, z: Tensor, y: Tensor, steps: int, lr: float) -> Tensor:
    """Losses of g generators trained against one client, before each of T_G Adam steps: float64 [g, T_G] in nats.

    thetas: [g, P], initial parameters. z: [g, B, n], fixed latent vectors. inputs: (thetas, z) -> what the client sees
    of their images, [g B, channels, height, width], see `images_of`. y: int64 [g], classes. The loss of a generator
    depends on its own parameters only and Adam works by element, so one optimizer of the sum trains each generator as
    if alone. The cross-entropy is in float64: in float32 it is exactly zero at a margin of 19.
    """
    thetas = thetas.clone().requires_grad_()
    adam = Adam([thetas], lr, BETAS, fused=True)
    g, b = z.shape[:2]
    target, losses = y.repeat_interleave(b), []
    for _ in range(steps):
        loss = cross_entropy(model(inputs(thetas, z)).double(), target, reduction="none").view(g, b).mean(1)
        thetas.grad = torch.autograd.grad(loss.sum(), thetas)[0]
        adam.step()
        losses.append(loss.detach())
    return torch.stack(losses, 1)


def images_of(generator: Network, thetas: Tensor, z: Tensor) -> Tensor:
    """Images [g B, channels, height, width] of g generators, thetas [g, P], from latent vectors z [g, B, n]."""
    if len(thetas) == 1:
        return generator(thetas[0], z[0], train=True)
    return torch.func.vmap(lambda theta, z: generator(theta, z, train=True))(thetas, z).flatten(0, 1)


def scores(traces: Tensor) -> Tensor:
    """U, [c, m]: relative fall of each loss, (max - min) / min (FedHydra, Eqs. 2 and 3).

    traces: [m, c, T_G]. Raises ValueError, naming client and class, for a loss that is not finite. Warns of losses
    that are tiny from the start, where the score is a ratio of two tiny numbers.
    """
    if len(broken := (~torch.isfinite(traces).all(2)).nonzero()):
        k, j = broken[0].tolist()
        raise ValueError(f"the loss of the generator for client {k} and class {j} is NaN or infinite")
    low, high = traces.amin(2), traces.amax(2)
    if len(faint := (high < FAINT).nonzero()):
        pairs = ", ".join(f"client {k} class {j}" for k, j in faint.tolist())
        warnings.warn(f"generators please {pairs} from the start (loss below {FAINT:g})", stacklevel=2)
    return ((high - low) / low.clamp(min=FLOOR)).T


def normalised(U: Tensor) -> tuple[Tensor, Tensor]:
    """U [c, m] normalised over the clients, U_r, and over the classes, U_c; their rows or columns sum to 1 (Eqs. 4-7).

    A row or column of zeros becomes uniform, 1/m or 1/c.
    """
    return _shares(U, 1), _shares(U, 0)


def _shares(U: Tensor, dim: int) -> Tensor:
    total = U.sum(dim, keepdim=True)
    return torch.where(total > 0, U / total, 1 / U.shape[dim])
