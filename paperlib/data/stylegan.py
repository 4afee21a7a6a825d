"""Images of an untrained StyleGAN generator, whose classes differ only in the mean of their latent vectors.

The generator is that of Karras et al. 2020, "Analyzing and improving the image quality of StyleGAN", as the authors of
VHL use it in their public code (Tang et al. 2022, "Virtual homogeneity learning"): one mapping layer, noise of weight
zero. The noise and the biases, which start at zero, are left out here. It has 64 channels instead of 512: contrast,
colors and distances between classes are similar, and an image costs a fiftieth. Unlike there, images are not stored as
JPEG files.
"""

import contextlib
import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, interpolate, leaky_relu, linear
from tqdm import tqdm

from paperlib.files import DamagedFile, read_array, write_array
from paperlib.paths import copies
from paperlib.random_streams import rng
from paperlib.workers import worker_pool

CHANNELS = 64  # up to 32 pixels; half as many for each doubling from there, as in the authors' code
MEAN = 0.5  # standard deviation of the latent means of the classes
LUMINANCE = torch.tensor([0.299, 0.587, 0.114])  # of red, green and blue, for data sets in grey
EPSILON = 1e-8
# Of an image that was enlarged by zeros between its pixels. Sums to 4, as three pixels of four are zero.
SMOOTHING = torch.outer(torch.tensor([1.0, 3.0, 3.0, 1.0]), torch.tensor([1.0, 3.0, 3.0, 1.0])) / 16
_CHUNK = 10  # images made at a time: their feature maps stay in the processor's cache
PATIENCE = 3  # seconds after which a terminal shows the progress
LONGEST = 1800  # seconds that another process may take
_CODE = Path(__file__).read_bytes()  # part of the cache key: other code may give other images


class Layer(NamedTuple):
    """A modulated convolution, with the affine map that makes its style of w."""

    kernel: Tensor  # [O, I, k, k]
    affine: Tensor  # [I, D]

    def style(self, w: Tensor) -> Tensor:
        """s = 1 + A w, [B, I]."""
        return 1 + linear(w, self.affine)


class Block(NamedTuple):
    """The layers of one resolution: one, or two, of which the first doubles the resolution."""

    layers: list[Layer]
    to_rgb: Layer


class Generator:
    """An untrained generator of square images, all weights from one stream.

    side: pixels, a power of two from 4 on. dimension: D, of the latent space. Weights are N(0, 1) / sqrt(fan-in), the
    equalised learning rate; the mapping layer's learning-rate multiplier cancels as long as nothing is trained.
    """

    def __init__(self, side: int, dimension: int, stream: np.random.Generator):
        def normal(*shape: int) -> Tensor:
            return torch.from_numpy(stream.standard_normal(shape)).float()

        def equalised(*shape: int) -> Tensor:
            return normal(*shape) / math.sqrt(math.prod(shape[1:]))

        def layer(out: int, channels: int, size: int) -> Layer:
            kernel = equalised(out, channels, size, size).contiguous(memory_format=torch.channels_last)
            return Layer(kernel, equalised(channels, dimension))

        self.mapping = equalised(dimension, dimension)
        self.constant = normal(1, CHANNELS, 4, 4).contiguous(memory_format=torch.channels_last)
        self.blocks = [Block([layer(CHANNELS, CHANNELS, 3)], layer(3, CHANNELS, 1))]
        channels = CHANNELS
        for size in (2**n for n in range(3, side.bit_length())):
            before, channels = channels, min(CHANNELS, max(32 * CHANNELS // size, 1))
            layers = [layer(channels, before, 3), layer(channels, channels, 3)]
            self.blocks.append(Block(layers, layer(3, channels, 1)))

    def __call__(self, z: Tensor) -> Tensor:
        """z [B, D] -> images [B, 3, side, side] whose pixels are not yet limited to 0 to 1."""
        w = self.map(z)
        x = self.constant.expand(len(z), -1, -1, -1)
        image = torch.zeros(len(z), 3, 2, 2)  # the first block has nothing to add to
        for layers, to_rgb in self.blocks:
            for layer in layers:
                x = activation(modulated_convolution(x, layer.kernel, layer.style(w), up=layer is not layers[-1]))
            image = enlarged(image) + modulated_convolution(x, to_rgb.kernel, to_rgb.style(w), demodulate=False)
        return image

    def map(self, z: Tensor) -> Tensor:
        """The mapping network: z [B, D], scaled to a mean square of 1, -> w [B, D]."""
        return activation(linear(z * (z.square().mean(1, keepdim=True) + EPSILON).rsqrt(), self.mapping))


def modulated_convolution(x: Tensor, kernel: Tensor, s: Tensor, up: bool = False, demodulate: bool = True) -> Tensor:
    """Convolve image b of x [B, I, H, W] with w_oik = s_bi kernel_oik (Eq. 1), kernel [O, I, k, k] with k odd.

    demodulate: divide w by its norm per output channel, sqrt(sum_ik w_oik^2 + 1e-8) (Eq. 3). up: double height and
    width by a transposed convolution. The styles [B, I] scale the input instead of the kernel, and the norms divide
    the output, which is the same (section 2.2).
    """
    x = x * s[:, :, None, None]
    if up:
        x = conv_transpose2d(x, kernel.transpose(0, 1), stride=2)
        x = conv2d(x, _per_channel(x), padding=1, groups=x.shape[1])
    else:
        x = conv2d(x, kernel, padding=kernel.shape[-1] // 2)
    if demodulate:
        squares = linear(s.square(), kernel.square().sum((2, 3)))
        x = x * (squares + EPSILON).rsqrt()[:, :, None, None]
    return x


def activation(x: Tensor) -> Tensor:
    """Leaky ReLU with slope 0.2, times sqrt(2), which about keeps the mean square."""
    return leaky_relu(x, 0.2) * math.sqrt(2)


def enlarged(image: Tensor) -> Tensor:
    """[B, C, H, W] -> [B, C, 2 H, 2 W]: zeros in between, smoothed."""
    return conv_transpose2d(image, _per_channel(image), stride=2, padding=1, groups=image.shape[1])


def _per_channel(x: Tensor) -> Tensor:
    return SMOOTHING.to(x.dtype).expand(x.shape[1], 1, 4, 4)


def stylegan_images(shape: tuple[int, int, int], classes: int, per_class: int, seed: int) -> NDArray[np.uint8]:
    """Images [classes, per_class, channels, height, width] of the shape (channels, height, width).

    The latent vectors of class c are N(m_c, s^2 I) around m_c ~ N(0, 0.5^2 I), see `latent_space`. Images are made at
    the next power of two, clipped to 0 to 1, in grey by their luminance, and reduced to height and width. One machine
    always makes the same bytes; another one may round a few differently. They are cached in `paperlib.paths.copies`.

    Raises ValueError if there are neither 1 nor 3 channels.
    """
    if shape[0] not in (1, 3):
        raise ValueError(f"surrogate stylegan has images of 1 or 3 channels, not of {shape[0]}: choose gaussian")
    arguments = (shape, classes, per_class, seed)
    with contextlib.ExitStack() as held:
        path = _file(*arguments)
        with contextlib.suppress(OSError):  # a read-only folder only costs time
            path.parent.mkdir(parents=True, exist_ok=True)
            # Of processes that need them one makes them, unless it has been stopped.
            held.enter_context(FileLock(path.with_suffix(".lock"), timeout=LONGEST))
        with contextlib.suppress(DamagedFile):
            return read_array(path, (classes, per_class, *shape))
        images = _new_images(*arguments)
        with contextlib.suppress(OSError):
            write_array(path, images)
        return images


def _file(*arguments: object) -> Path:
    """Return the cache file, named by arguments, code and library versions, since each may change the images."""
    versions = torch.__version__, np.__version__, torch.backends.cpu.get_cpu_capability()
    key = hashlib.sha256(_CODE + repr((arguments, versions)).encode())
    return copies() / "surrogates" / key.hexdigest()[:16]


def latent_space(classes: int) -> tuple[int, float]:
    """Dimension D and standard deviation s within a class: what the script of VHL's authors has for 10, 100 and 200."""
    if classes <= 10:
        return 64, 0.3
    return 256, 0.2 if classes <= 100 else 0.15


def _new_images(shape: tuple[int, int, int], classes: int, per_class: int, seed: int) -> NDArray[np.uint8]:
    dimension, spread = latent_space(classes)
    side = max(2 ** (max(shape[1:]) - 1).bit_length(), 4)
    images = np.empty((classes, per_class, *shape), dtype=np.uint8)
    with worker_pool(1), torch.no_grad():
        generator = Generator(side, dimension, rng(seed, "stylegan"))
        for c in tqdm(range(classes), desc="surrogate images", delay=PATIENCE, leave=False, disable=None):
            stream = rng(seed, "stylegan latents", 0, c)
            mean = MEAN * stream.standard_normal(dimension)
            for start in range(0, per_class, _CHUNK):
                rows = images[c, start : start + _CHUNK]
                z = mean + spread * stream.standard_normal((len(rows), dimension))
                rows[...] = _pixels(generator(torch.from_numpy(z).float()), shape).numpy()
    return images


def _pixels(image: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Images [B, 3, side, side] as bytes [B, channels, height, width]."""
    image = image.clip(0, 1)
    if shape[0] == 1:
        image = (image * LUMINANCE[:, None, None]).sum(1, keepdim=True)
    if image.shape[2:] != shape[1:]:
        image = interpolate(image, shape[1:], mode="bilinear", antialias=True)
    return (255 * image + 0.5).byte()
