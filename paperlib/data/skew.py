"""Feature skew: the images of every client have noise and a rotation of their own."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paperlib._torchvision import torchvision
from paperlib.data.datasets import Dataset
from paperlib.random_streams import rng
from paperlib.workers import torch_defaults


@torch_defaults()
def skewed(data: Dataset, parts: Sequence[Tensor], noise: float, rotation: float, seed: int) -> Dataset:
    """Return the data set with skewed images: nothing changes for the first client, and most for the last.

    parts: the training samples of the N clients. Client i, from 0, gets Gaussian noise of standard deviation
    noise i / (N - 1), of pixels in [0, 1], on images that are turned by rotation i / (N - 1) degrees, counterclockwise,
    bilinearly and with black corners. Each image is skewed once, and its pixels become bytes again. The test images are
    divided evenly among the clients, so that every kind of image counts as much in the accuracy.

    Li et al. 2022, "Federated learning on non-IID data silos: An experimental study" (NIID-Bench), writes
    Gau(sigma i / N) and calls sigma i / N the variance. Its public code, which is followed here, makes it the standard
    deviation, and has a first client without noise. That code draws noise anew whenever an image is read, does not
    limit pixels, and tests on every test image once per client. The rotation is not in it; rotated MNIST has one.
    """
    rotate, bilinear = torchvision().transforms.functional.rotate, torchvision().transforms.InterpolationMode.BILINEAR
    changed = {}
    for split, divided in (("train", parts), ("test", torch.arange(len(data.test_labels)).tensor_split(len(parts)))):
        images = vars(data)[f"{split}_images"].cpu().clone()
        for client, part in enumerate(divided):
            own, share = part.cpu(), client / max(len(parts) - 1, 1)
            x = rotate(images[own].double().flatten(0, 1), rotation * share, bilinear)  # which takes no 0 images in 4-D
            x += 255 * noise * share * torch.from_numpy(rng(seed, f"{split} noise", 0, client).standard_normal(x.shape))
            images[own] = x.round().clamp(0, 255).to(torch.uint8).view(-1, *data.shape)
        changed[f"{split}_images"] = images.to(data.device)
    return replace(data, **changed)
