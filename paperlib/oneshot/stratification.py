"""Model stratification: how well each client knows each class, by how far a generator learns to please it.

FedHydra, Algorithm 2. Every client k and class j get a new generator, which learns for T_G steps to make images that
the client takes for class j. The further its loss falls, relative to its floor, the more the client knows of the class.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from paperlib.data.batches import PixelScale, standardise
from paperlib.networks import Network
from paperlib.networks.stacking import stacked
from paperlib.oneshot.ensemble import Ensemble, Model

BETAS = (0.5, 0.999)  # of Adam on a generator: DENSE's, and FedHydra names none

# The least that a floor counts. Above 1e-8 a client with one class would lose it: its loss is tiny for any image.
FLOOR = 1e-12
FAINT = 1e-4

Start = Callable[[int, int], tuple[Tensor, Tensor]]


def traces(
    ensemble: Ensemble, generator: Network, start: Start, steps: int, scale: PixelScale, lr: float = 1e-3
) -> Tensor:
    """Losses of all clients' generators, float64 [m, c, T_G] in nats; see `trace`.

    start: (client, class) -> parameters [P] of its generator and latent vectors [B, n], on the clients' device.
    A GPU trains the generators of one client at once, which a CPU is slower at than at one after the other.
    """
    classes = range(ensemble.classes)
    together = 1 if ensemble.models[0].theta.device.type == "cpu" else len(classes)
    found = []
    for k, model in enumerate(ensemble.models):
        for first in classes[::together]:
            chosen = classes[first : first + together]
            thetas, latents = (torch.stack(part) for part in zip(*(start(k, j) for j in chosen), strict=True))
            y = torch.tensor(chosen, device=thetas.device)
            found.append(trace(model, generator, thetas, latents, y, steps, scale, lr))
    return torch.cat(found).view(len(ensemble), len(classes), steps)


def trace(
    model: Model, generator: Network, thetas: Tensor, z: Tensor, y: Tensor, steps: int, scale: PixelScale, lr: float
) -> Tensor:
    """Losses of g generators that learn to please one client, before each of T_G Adam steps: float64 [g, T_G] in nats.

    thetas: [g, P], where they start. z: [g, B, n], each one's latent vectors, which stay. y: int64 [g], its class. The
    loss of a generator depends on its own parameters only and Adam works by element, so that one optimizer of the sum
    trains all as if each were alone. The cross-entropy is in float64: in float32 it is exactly zero at a margin of 17.
    """
    thetas = thetas.clone().requires_grad_()
    adam = Adam([thetas], lr, BETAS, fused=True)
    g, b = z.shape[:2]
    target, losses = y.repeat_interleave(b), []
    for _ in range(steps):
        if g == 1:
            images = generator(thetas[0], z[0], train=True)
        else:
            with stacked():
                images = torch.func.vmap(lambda theta, z: generator(theta, z, train=True))(thetas, z).flatten(0, 1)
        logits = model(standardise(images, scale))
        loss = cross_entropy(logits.double(), target, reduction="none").view(g, b).mean(1)
        thetas.grad = torch.autograd.grad(loss.sum(), thetas)[0]
        adam.step()
        losses.append(loss.detach())
    return torch.stack(losses, 1)


def scores(traces: Tensor) -> Tensor:
    """U, [c, m]: by how much each loss fell, relative to its floor, (max - min) / min (FedHydra, Eqs. 2 and 3).

    traces: [m, c, T_G]. Raises ValueError, naming client and class, for one that is not finite. Warns of those that
    are tiny from the start, where the score is a ratio of two tiny numbers.
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
    """U [c, m] over the clients, U_r with rows of sum 1, and over the classes, U_c with columns of sum 1 (Eqs. 4 to 7).

    A row or column of zeros becomes uniform, 1/m or 1/c.
    """
    return _shares(U, 1), _shares(U, 0)


def _shares(U: Tensor, dim: int) -> Tensor:
    total = U.sum(dim, keepdim=True)
    return torch.where(total > 0, U / total, 1 / U.shape[dim])
