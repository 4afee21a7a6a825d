"""Mini-batches: order, repeats, augmentation and normalisation."""

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paperlib.data.batches import AUGMENTATIONS, crop_and_flip, cut_out, fill, normalise, standardise
from paperlib.data.datasets import Dataset
from paperlib.random_streams import rng

from ..batches import epoch


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def made(n: int = 23, channels: int = 3, size: int = 8) -> Dataset:
    """Labels that number the images, and no black pixel."""
    pixels, labels = images(n, channels, size, size), torch.arange(n)
    mean, std = (0.5, 0.25, 0.1)[:channels], (0.2, 0.5, 1.0)[:channels]
    return Dataset("made", pixels, labels, pixels, labels, tuple(map(str, range(n))), mean, std, "made for this test")


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- fill


@pytest.mark.parametrize(("n", "filled"), [(1, 50), (50, 50), (51, 100), (100, 100), (0, 0)])
def test_indices_are_filled_up_to_whole_batches(n, filled):
    indices = torch.arange(n) + 7
    result = fill(indices, 50)
    assert len(result) == filled
    assert result.tolist() == [7 + position % n for position in range(filled)]


# -- epoch


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 23), st.integers(1, 30), st.sampled_from([False, True, *AUGMENTATIONS]), st.integers(0, 1000))
def test_epoch_visits_every_index_exactly_once(n, batch_size, augment, seed):
    indices = torch.arange(23)[-n:]
    batches = list(epoch(made(), indices, batch_size, augment, stream(seed)))
    assert sorted(torch.cat([y for _, y in batches]).tolist()) == indices.tolist()
    assert [len(y) for _, y in batches] == [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0)
    assert all(len(x) == len(y) for x, y in batches)


@pytest.mark.parametrize(
    ("augment", "bits"),
    [
        (False, "30b61a0fe97e676d81263f8fb3f8cb0933265118781e9dfadc4bd000a0149188"),
        (True, "f695a2ff1d1a9cfc40efae4b83e9c7210e7d30c09164f84d6aaf85345ca43899"),
    ],
)
def test_batches_have_the_bits_that_finished_runs_were_made_with(augment, bits):
    digest, generator, data = hashlib.sha256(), stream(5), made(size=16)
    for _ in range(2):  # the second epoch has other bits if the first one drew more or less
        for x, y in epoch(data, torch.arange(23), 5, augment, generator):
            digest.update(x.contiguous().numpy().tobytes() + y.numpy().tobytes())
    assert digest.hexdigest() == bits


def test_repeated_indices_are_visited_as_often_as_they_occur():
    (_, y), (_, z) = epoch(made(), fill(torch.arange(3), 4).repeat(2), 4, False, stream())
    assert sorted([*y.tolist(), *z.tolist()]) == [0, 0, 0, 0, 1, 1, 2, 2]


def test_images_stay_with_their_labels():
    data = made()
    for x, y in epoch(data, torch.arange(23), 5, False, stream()):
        assert torch.equal(x, normalise(data.train_images[y], data))


def test_order_comes_from_the_stream_and_changes_between_epochs():
    def order(generator: np.random.Generator) -> list[int]:
        return torch.cat([y for _, y in epoch(made(), torch.arange(23), 5, False, generator)]).tolist()

    one = stream(1)
    first, second = order(one), order(one)
    assert first == order(stream(1))
    assert first != second and first != list(range(23)) and first != order(stream(2))


def test_every_image_of_an_epoch_is_augmented_on_its_own():
    data = dataclasses.replace(made(n=400, channels=1), train_images=images(1, 1, 8, 8).repeat(400, 1, 1, 1))
    x = torch.cat([x for x, _ in epoch(data, torch.arange(400), 7, True, stream())])
    kinds = {image.numpy().tobytes() for image in x}
    assert len(kinds) == 2 * 3 * 3  # flipped or not, and shifted by -1, 0 or 1 in both directions
    unchanged = normalise(data.train_images[:1], data)
    assert (x == unchanged).flatten(1).all(1).double().mean() == pytest.approx(1 / 18, abs=0.04)


def test_training_images_are_left_alone():
    data = made()
    before = data.train_images.clone()
    list(epoch(data, torch.arange(23), 5, True, stream()))
    assert torch.equal(data.train_images, before)


# -- augmentation


def plain_crop_and_flip(image: list, row: int, column: int, flip: bool, margin: int) -> list:
    """Pixel by pixel: pad, cut out, mirror."""
    height, width = len(image), len(image[0])
    padded = [[0] * (width + 2 * margin) for _ in range(height + 2 * margin)]
    for i in range(height):
        for j in range(width):
            padded[i + margin][j + margin] = image[i][j]
    cropped = [[padded[row + i][column + j] for j in range(width)] for i in range(height)]
    return [line[::-1] for line in cropped] if flip else cropped


@pytest.mark.parametrize(("channels", "height", "width", "margin"), [(1, 6, 6, 2), (3, 5, 7, 1), (2, 4, 4, 4)])
def test_crop_and_flip_match_a_loop_over_pixels(channels, height, width, margin):
    originals = images(40, channels, height, width)
    draws = torch.Generator().manual_seed(1)
    shifts = torch.randint(0, 2 * margin + 1, (2, 40), generator=draws)
    shifts[:, 0], shifts[:, 1] = 0, 2 * margin
    flips = torch.rand(40, generator=draws) < 0.5
    result = crop_and_flip(originals, shifts, flips, margin)
    for image, new, row, column, flip in zip(originals, result, *shifts.tolist(), flips.tolist(), strict=True):
        expected = [plain_crop_and_flip(plane.tolist(), row, column, flip, margin) for plane in image]
        assert new.tolist() == expected


def augmented(image: np.ndarray, name: str, draws: tuple, data: Dataset) -> np.ndarray:
    """One image [C, H, W] by the definition of a named augmentation, float64; draws: row, column, flip, center."""
    (row, column), flip, (i, j) = draws
    _, height, width = image.shape
    margin, half = width // 8, width // 4
    if name != "none":
        mode = "reflect" if name == "reflect_flip" else "constant"
        padded = np.pad(image, ((0, 0), (margin, margin), (margin, margin)), mode)
        image = padded[:, row : row + height, column : column + width]
    if flip and "flip" in name:
        image = image[:, :, ::-1]
    mean, std = (np.array(values)[:, None, None] for values in (data.mean, data.std))
    x = (image / 255 - mean) / std
    if "cutout" in name:
        x[:, max(i - half, 0) : i + half, max(j - half, 0) : j + half] = 0
    return x


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_match_a_loop_over_images(name):
    n, size, batch_size = 300, 16, 64
    data = dataclasses.replace(made(n), train_images=images(n, 3, size, size), mean=(0.4, 0.5, 0.6))
    draws = stream(2)
    order = draws.permutation(n)
    shifts = draws.integers(0, 5, (2, n)).T if name != "none" else np.zeros((n, 2))
    flips = draws.integers(0, 2, n) if "flip" in name else np.zeros(n)
    centers = draws.integers(0, size, (2, n)).T if "cutout" in name else np.zeros((n, 2), dtype=int)
    batches = list(epoch(data, torch.arange(n), batch_size, name, stream(2)))
    assert torch.cat([y for _, y in batches]).tolist() == order.tolist()
    for x, *how in zip(torch.cat([x for x, _ in batches]), order, shifts, flips, centers, strict=True):
        expected = augmented(data.train_images[how[0]].numpy(), name, tuple(how[1:]), data)
        assert np.abs(x.numpy() - expected).max() < 1e-5
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in batches)


def test_unknown_augmentation_is_refused_with_the_names_there_are():
    sentence = "unknown augmentation 'mirror'; choose one of none, crop_flip, crop, reflect_flip, crop_flip_cutout"
    with pytest.raises(ValueError, match=sentence):
        next(epoch(made(), torch.arange(5), 5, "mirror", stream()))


def test_reflection_does_not_repeat_the_border():
    image = torch.arange(5, dtype=torch.uint8).expand(1, 1, 5, 5)
    shifts, flips = torch.tensor([[2, 2], [0, 4]]), torch.tensor([False, False])
    left, right = crop_and_flip(image.expand(2, 1, 5, 5), shifts, flips, 2, "reflection")[:, 0, 0].tolist()
    assert left == [2, 1, 0, 1, 2] and right == [2, 3, 4, 3, 2]


@pytest.mark.parametrize(("size", "side"), [(8, 4), (32, 16), (7, 3)])
def test_cutout_covers_exactly_the_square_within_the_image(size, side):
    places = (0, 1, side // 2, size // 2, size - 2, size - 1)
    centers = torch.tensor(list(itertools.product(places, places))).T
    x = cut_out(torch.ones(centers.shape[1], 2, size, size), centers, side)
    for image, i, j in zip(x, *centers.tolist(), strict=True):
        cut = {
            (row, column)
            for row in range(i - side // 2, i - side // 2 + side)
            for column in range(j - side // 2, j - side // 2 + side)
            if 0 <= row < size and 0 <= column < size
        }
        for channel in image:
            assert {tuple(pixel) for pixel in (channel == 0).nonzero().tolist()} == cut


def test_cutout_in_the_corners_of_a_cifar_image_leaves_quarters_of_the_square():
    centers = torch.tensor([[0, 0, 31, 31, 16], [0, 31, 0, 31, 16]])
    x = cut_out(torch.ones(5, 1, 32, 32), centers, 16)
    assert (x == 0).flatten(1).sum(1).tolist() == [8 * 8, 8 * 9, 9 * 8, 9 * 9, 16 * 16]
    assert (x[1, 0, :8, 23:] == 0).all() and (x[3, 0, 23:, 23:] == 0).all()


def test_centre_crop_without_flip_is_the_image():
    originals = images(3, 3, 8, 8)
    same = crop_and_flip(originals, torch.ones(2, 3, dtype=torch.int64), torch.zeros(3, dtype=torch.bool), 1)
    assert torch.equal(same, originals)


def test_padding_is_black_before_normalisation():
    data = made(n=200)  # whose own pixels are never black
    x = torch.cat([x for x, _ in epoch(data, torch.arange(200), 50, True, stream())])
    for channel in range(3):
        black = -data.mean[channel] / data.std[channel]
        share = torch.isclose(x[:, channel], torch.tensor(black), atol=1e-6).double().mean()
        assert share == pytest.approx(1 - (1 - 2 / 3 / 8) ** 2, abs=0.02)  # an edge is lost in two of three shifts


# -- normalisation


@pytest.mark.parametrize("channels", [1, 3])
def test_normalisation_is_the_formula(channels):
    data = made(channels=channels)
    pixels = torch.arange(256).to(torch.uint8).view(1, 1, 16, 16).repeat(2, channels, 1, 1)
    mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (data.mean, data.std))
    x = normalise(pixels, data)
    assert x.dtype == torch.float32
    assert (x - (pixels.double() / 255 - mean) / std).abs().max() < 2e-6


def test_normalised_images_lie_channels_last():
    x = normalise(images(4, 3, 8, 8), made())
    assert x.stride() == (3 * 8 * 8, 1, 3 * 8, 3)
    x, _ = next(epoch(made(), torch.arange(23), 5, True, stream()))
    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("channels", [1, 3])
def test_what_follows_a_convolution_lies_channels_last_for_grey_images_too(channels):
    """The strides of one channel fit both layouts, and torch takes [H * W, H * W, W, 1] for the other one."""
    weight, data = torch.randn(4, channels, 3, 3), made(channels=channels)
    for x in (normalise(images(4, channels, 8, 8), data), standardise(torch.rand(4, channels, 8, 8), data)):
        maps = torch.nn.functional.conv2d(x.requires_grad_(), weight, padding=1)
        assert maps.stride() == (4 * 8 * 8, 1, 4 * 8, 4)


def test_standardised_images_pass_their_gradient_on():
    pixels = torch.rand(4, 1, 8, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.rand_like(pixels)
    (g,) = torch.autograd.grad((standardise(pixels, made(channels=1)) * weight).sum(), pixels)
    torch.testing.assert_close(g, weight / made().std[0])


@pytest.mark.parametrize(("size", "margin"), [(28, 4), (32, 4), (64, 8)])
def test_crops_reach_as_far_as_the_papers_padding(size, margin):
    """A single white pixel is found at every place up to ``margin`` pixels away, and nowhere else."""
    n = 2000
    images = torch.zeros(n, 1, size, size, dtype=torch.uint8)
    images[:, :, size // 2, size // 2] = 255
    labels = torch.zeros(n, dtype=torch.int64)
    data = Dataset("dot", images, labels, images[:1], labels[:1], ("dot",), (0.0,), (1.0,), "a dot")
    x = torch.cat([x for x, _ in epoch(data, torch.arange(n), 500, True, rng(0, "batches"))])
    rows = set(x.flatten(1).argmax(1).div(size, rounding_mode="floor").tolist())
    assert rows == set(range(size // 2 - margin, size // 2 + margin + 1))
