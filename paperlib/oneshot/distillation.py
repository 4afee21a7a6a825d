"""Data-free distillation, shared by DENSE, Co-Boosting, FedHydra and FedDF.

In each epoch a generator learns to make images that the clients classify with confidence. Then the server's model, the
student, learns the clients' predictions, the teacher, on all images so far.
"""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.adam import adam
from torch.utils._pytree import tree_map

from paperlib.data.batches import Augmentation, normalise, random_crop_and_flip, standardise
from paperlib.federated.context import Context
from paperlib.federated.local import clip_norm
from paperlib.federated.method import State
from paperlib.federated.progress import Progress
from paperlib.methods.math.losses import softened_kl
from paperlib.oneshot.aggregation import averaged
from paperlib.oneshot.base import OneShot
from paperlib.oneshot.ensemble import Ensemble
from paperlib.oneshot.generator import KINDS, generator
from paperlib.oneshot.samples import as_bytes, merged, representatives, shuffled
from paperlib.oneshot.stratification import BETAS
from paperlib.options import MANY, option
from paperlib.random_streams import rng, to_device, torch_rng

KEPT = 20  # synthetic images of a finished run
# Of the generator; as a function of its state, because `torch.optim.Adam` warns of every step that is not recorded.
ADAM: dict[str, Any] = {"beta1": BETAS[0], "beta2": BETAS[1], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}


class Distillation(OneShot):
    """A generator and the student in turns, with the clients' averaged logits as the teacher P.

    The generator minimises CE(P, y) + lambda_1 BatchNorm distance - lambda_2 KL(P || student), the student KL(P ||
    student) at ``temperature`` T, times T^2.

    distill_epochs: T_g. generator_steps: T_G, per epoch. batch: images that the generator makes, and the student's
    batch. latent: length of z. generator, generator_width: see `generator`. lr_g: Adam's, for the generator.
    lr, momentum, weight_decay: SGD's, for the student. cosine: lr falls to zero over the epochs, along half a cosine.
    clip: largest norm of a gradient, of the generator's parameters and of the student's.
    train_on: the student's images in an epoch: the whole "pool", to which each epoch adds one batch; the batches of all
        generator steps ("intermediates"); or the epoch's last batch ("literal": FedHydra, Algorithm 1). Each image is
        seen once and stored in 8 bits.
    keep: which of an epoch's batches goes into the pool, the "last" or the one with the "lowest" loss.
    reset_generator: a new generator every epoch. train_latent: z is trained, too.
    augment: random crop and flip of the images for clients and student.
    student_init: a new network ("fresh"), the clients' initial network ("common"), or the clients' average ("average");
        if they do not have the student's architecture, "average" means a new network. In later rounds the first two
        continue from the model of the previous round.

    Recorded per epoch, in percent of the student's images: teacher_as_asked, where the teacher predicts the requested
    label; agreement, where student and teacher predict the same class during training.
    """

    distill_epochs: int = option(200, at_least=1)
    generator_steps: int = option(30, at_least=1)
    batch: int = option(256, at_least=1, at_most=MANY)
    latent: int = option(256, at_least=1, at_most=MANY)
    generator: str = option("deconv", choices=KINDS)
    generator_width: float = option(1.0, above=0)
    lambda_1: float = option(1.0, at_least=0)
    lambda_2: float = option(1.0, at_least=0)
    lr_g: float = option(1e-3, above=0)
    lr: float = option(0.01, above=0)
    momentum: float = option(0.9, at_least=0)
    weight_decay: float = option(0.0, at_least=0)
    cosine: bool = False
    clip: float | None = option(None, above=0)
    temperature: float = option(1.0, above=0)
    train_on: str = option("pool", choices=("pool", "intermediates", "literal"))
    keep: str = option("last", choices=("last", "lowest"))
    reset_generator: bool = False
    train_latent: bool = False
    augment: bool = False
    student_init: str = option("fresh", choices=("fresh", "common", "average"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep == "lowest" and self.train_on != "pool":
            name = type(self).__name__
            raise ValueError(f"keep of {name} is 'lowest', which is for train_on 'pool' and not {self.train_on!r}")

    def setup(self, context: Context) -> OneShot:
        super().setup(context)
        self.G = generator(self.generator, self.latent, context.data.shape, self.generator_width)
        self.seed = context.experiment.seed
        self.augmentation = Augmentation("zeros", flip=True) if self.augment else Augmentation()
        return self

    @property
    def epochs(self) -> int:
        return self.distill_epochs

    # -- the algorithm: lines 11 to 25 of FedHydra's Algorithm 1

    def start(self, ensemble: Ensemble, progress: Progress, round: int) -> None:
        without_norm = [k for k, model in enumerate(ensemble.models) if not model.net.buffer_size]
        if self.lambda_1 and without_norm:
            names = ", ".join(map(str, without_norm))
            warnings.warn(f"clients without BatchNorm add nothing to the loss of lambda_1: {names}", stacklevel=2)
        if self.student_init == "average" and ensemble.has_architecture(self.net):
            progress.theta, progress.buffers = ensemble.average()
        elif self.student_init == "fresh" and round == 1:
            progress.theta = self.net.initial(torch_rng(self.seed, "student")).to(progress.theta)
        for t in list(progress.clients):
            del progress.clients[t]
        progress.server = {"momentum": torch.zeros_like(progress.theta)}
        if not self.reset_generator:
            progress.server["generator"] = self.fresh_generator(progress.theta, "generator", round)

    def epoch(self, ensemble: Ensemble, progress: Progress, round: int, t: int) -> dict[str, float]:
        """Lines 13 to 24: the generator's steps, then the student's on the pool of batches."""
        batches, generator_loss = self.generate(ensemble, progress, round, t)
        if self.train_on != "pool":
            progress.clients.pop(t - 1, None)
        progress.clients[t] = batches[-1]
        if self.train_on == "pool":
            batches = [merged(list(progress.clients.values()))]
        record = self.distil(ensemble, progress, batches, round, t)
        if not math.isfinite(generator_loss):  # the images are bytes, where it would not show
            progress.theta = torch.full_like(progress.theta, math.nan)
        return {"generator_loss": generator_loss, **record}

    def generate(self, ensemble: Ensemble, progress: Progress, round: int, t: int) -> tuple[list[State], float]:
        """Lines 13 to 21: train the generator on one batch of latent vectors z and labels y.

        Returns the batches of samples that ``train_on`` and ``keep`` choose, and the loss of the last one.
        """
        stream = torch_rng(self.seed, "synthetic batch", round, t)
        theta = progress.server.get("generator")
        if theta is None:
            theta = self.fresh_generator(progress.theta, "generator", round, t)
        z = to_device(torch.randn(self.batch, self.latent, generator=stream), theta.device).to(theta)
        y = to_device(torch.randint(ensemble.classes, (self.batch,), generator=stream), theta.device)
        learned = [theta, z] if self.train_latent else [theta]
        state = {name: [torch.zeros_like(leaf) for leaf in learned] for name in ("exp_avgs", "exp_avg_sqs")}
        state |= {"max_exp_avg_sqs": [], "state_steps": [*torch.zeros(len(learned), device=theta.device)]}
        values = {"student": _tensors(progress), "learned": learned, "z": z, "y": y, "stream": stream, "adam": state}
        m, step = ensemble.begin(self.generator_step, values)
        kept, losses = zip(*(step() for _ in range(self.generator_steps)), strict=True)
        if not self.reset_generator:
            progress.server["generator"] = m["learned"][0].clone()
        chosen = list(range(self.generator_steps)) if self.train_on == "intermediates" else [-1]
        if self.keep == "lowest":
            chosen = [int(torch.stack(losses).argmin())]
        batches = [self.sampled(ensemble, progress.server, kept[step], y) for step in chosen]
        return batches, float(losses[chosen[-1]])

    def generator_step(self, ensemble: Ensemble, m: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Take a step of Adam, of the parameters and of the latent vectors if they are trained.

        Returns the images before it, in bytes, and their loss.
        """
        leaves = [leaf.detach().requires_grad_() for leaf in m["learned"]]
        images = self.G(*[*leaves, m["z"]][:2], train=True)  # z is learned, or else the one that was drawn
        x = standardise(self.view(images, m["stream"]), self.context.data)
        loss = self.generator_loss(ensemble, Progress(0, **m["student"]), x, m["y"])
        grads = [*torch.autograd.grad(loss, leaves)]
        if self.clip is not None:
            clip_norm(grads[0], self.clip)
        adam(m["learned"], grads, **m["adam"], lr=self.lr_g, fused=True, maximize=False, **ADAM)
        return as_bytes(images), loss.detach()

    def generator_loss(self, ensemble: Ensemble, progress: Progress, x: Tensor, y: Tensor) -> Tensor:
        """Line 18: the generator's loss on its normalised images x with requested labels y [B]; scalar."""
        if self.lambda_1:
            logits, distance = ensemble.logits_and_distance(x)
        else:
            logits, distance = ensemble.logits(x), x.new_zeros(())
        P = self.aggregate(logits, y, progress.server)
        loss = self.label_loss(P, y) + self.lambda_1 * distance
        if self.lambda_2:
            S = self.net(progress.theta, x, buffers=progress.buffers)
            loss = loss - self.lambda_2 * self.disagreement(P, S)
        return loss

    def distil(
        self, ensemble: Ensemble, progress: Progress, batches: list[State], round: int, t: int
    ) -> dict[str, float]:
        """Lines 23 and 24: one pass of the student over samples in random order; returns the recorded quantities."""
        m: dict[str, Any] = {"student": _tensors(progress), "stream": torch_rng(self.seed, "distillation", round, t)}
        lr = self.lr * (0.5 * (1 + math.cos(math.pi * (t - 1) / self.epochs)) if self.cosine else 1.0)
        order = rng(self.seed, "distillation order", round, t)
        steps = []
        for batch in batches:
            for x, samples in shuffled(batch, self.context.data, self.augmentation, self.batch, order):
                m, step = ensemble.begin(self.student_step, m | {"x": x, "samples": samples})
                steps.append(step())
                m["student"]["theta"].add_(m["student"]["server"]["momentum"], alpha=-lr)
        vars(progress).update(tree_map(torch.clone, m["student"]))
        losses, agreeing = zip(*steps, strict=True)
        as_requested = [self.recalled(batch, progress.server).argmax(1) == batch["labels"] for batch in batches]
        return {
            "student_loss": float(torch.stack(losses).mean()),
            "agreement": 100 * float(torch.cat(agreeing).double().mean()),
            "teacher_as_asked": 100 * float(torch.cat(as_requested).double().mean()),
        }

    def student_step(self, ensemble: Ensemble, m: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Change the student's momentum and BatchNorm statistics by a batch.

        Returns the loss, and where student and teacher predict the same class, [B].
        """
        student = Progress(0, **m["student"])
        x, P = self.lesson(ensemble, student.server, m["x"].to(student.theta.dtype), m["samples"], m["stream"])
        theta = student.theta.detach().requires_grad_()
        S = self.net(theta, x, buffers=student.buffers, train=True, generator=m["stream"])
        loss = self.student_loss(P, S)
        g = torch.autograd.grad(loss, theta)[0]
        if self.clip is not None:
            clip_norm(g, self.clip)
        student.server["momentum"].mul_(self.momentum).add_(g.add_(student.theta, alpha=self.weight_decay))
        return loss.detach(), S.argmax(1) == P.argmax(1)

    # -- what the methods change

    def aggregate(self, logits: Tensor, y: Tensor, server: State) -> Tensor:
        """P, the teacher's logits [B, C] from the clients' [m, B, C]; y: int64 [B], requested labels."""
        return averaged(logits)

    def label_loss(self, P: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the teacher against the requested labels; scalar in nats."""
        return cross_entropy(P, y)

    def disagreement(self, P: Tensor, S: Tensor) -> Tensor:
        """Divergence of the student from the teacher, raised by the generator; logits S, P [B, C]; scalar."""
        return softened_kl(P, S, 1.0)

    def student_loss(self, P: Tensor, S: Tensor) -> Tensor:
        """The student's loss; scalar in nats."""
        return self.temperature**2 * softened_kl(P, S, self.temperature)

    def remember(self, logits: Tensor, y: Tensor, server: State) -> State:
        """Return the part of the clients' logits [m, B, C] to store with a batch of the pool; samples come first."""
        return {"teacher": self.aggregate(logits, y, server)}

    def recalled(self, samples: State, server: State) -> Tensor:
        """The teacher's logits [B, C] from the tensors stored by `remember`."""
        return samples["teacher"]

    def lesson(
        self, ensemble: Ensemble, server: State, x: Tensor, samples: State, stream: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The student's images [B, channels, height, width] and the teacher's logits [B, C] on them; no gradient.

        x: the images, normalised. samples: the tensors stored with them. The clients do not change, so their stored
        logits stay valid unless the image is augmented.
        """
        if not self.augment:
            return x, self.recalled(samples, server)
        with torch.no_grad():
            return x, self.aggregate(ensemble.logits(x), samples["labels"], server)

    def view(self, images: Tensor, stream: torch.Generator) -> Tensor:
        """Images [B, channels, height, width] as the networks see them in the generator's training."""
        return random_crop_and_flip(images, stream) if self.augment else images

    def sampled(self, ensemble: Ensemble, server: State, images: Tensor, y: Tensor) -> State:
        """The stored tensors of a batch: uint8 images, requested labels y [B], and those of `remember`."""
        x = normalise(images, self.context.data).to(ensemble.models[0].theta.dtype)
        with torch.no_grad():
            return {"images": images, "labels": y, **self.remember(ensemble.logits(x), y, server)}

    # -- the generator's training

    def fresh_generator(self, like: Tensor, purpose: str, round: int, t: int = 0) -> Tensor:
        """Initial parameters of a generator."""
        return to_device(self.G.initial(torch_rng(self.seed, purpose, round, t)), like.device).to(like)

    # -- results

    def kept(self, progress: Progress) -> dict[str, Tensor]:
        """Of the last epoch's batch: synthetic images, uint8 [n, channels, height, width], and labels, int64 [n]."""
        last = progress.clients[max(progress.clients)]
        chosen = representatives(last["labels"], KEPT)
        return {"images": last["images"][chosen], "labels": last["labels"][chosen]}


def _tensors(progress: Progress) -> dict[str, Any]:
    """What a step on the server reads of a run's state."""
    return {"theta": progress.theta, "buffers": progress.buffers, "server": progress.server}
