"""Images of an untrained StyleGAN: its operations, what parts the classes, the same bytes, and their files."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.signal import convolve2d
from torch.nn.functional import conv2d

from paperlib.data import stylegan
from paperlib.data.stylegan import Generator, enlarged, modulated_convolution, stylegan_images
from paperlib.data.surrogate import surrogate_set
from paperlib.random_streams import rng

SMALL = ((3, 8, 8), 3, 4, 0)
FILTER = np.outer([1, 3, 3, 1], [1, 3, 3, 1]) / 16


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path))
    return tmp_path / "surrogates"


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def with_zeros_between(image: np.ndarray) -> np.ndarray:
    wide = np.zeros((2 * image.shape[0] - 1, 2 * image.shape[1] - 1))
    wide[::2, ::2] = image
    return wide


# -- the generator's operations


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("demodulate", [True, False])
def test_modulated_convolution_gives_every_image_a_kernel_of_its_own(size, demodulate):
    x, kernel, s = normal(4, 5, 6, 7), normal(3, 5, size, size, seed=1), normal(4, 5, seed=2)
    y = modulated_convolution(x, kernel, s, demodulate=demodulate)
    for image, style, ours in zip(x, s, y, strict=True):
        own = kernel * style.view(1, 5, 1, 1)
        if demodulate:
            own = own / torch.sqrt((own**2).sum((1, 2, 3), keepdim=True) + 1e-8)
        torch.testing.assert_close(ours, conv2d(image[None], own, padding=size // 2)[0], atol=1e-12, rtol=0)


def test_enlarging_convolution_is_a_convolution_among_zeros_that_is_then_smoothed():
    x, kernel, s = normal(2, 3, 4, 5), normal(2, 3, 3, 3, seed=1), normal(2, 3, seed=2)
    y = modulated_convolution(x, kernel, s, up=True)
    assert y.shape == (2, 2, 8, 10)
    for b, o in np.ndindex(2, 2):
        own = (kernel[o] * s[b][:, None, None]).numpy()
        parts = [convolve2d(with_zeros_between(x[b, i].numpy()), own[i]) for i in range(3)]
        expected = convolve2d(np.pad(sum(parts), 1), FILTER, "valid") / np.sqrt((own**2).sum() + 1e-8)
        np.testing.assert_allclose(y[b, o], expected, atol=1e-12)


@pytest.mark.parametrize(("demodulate", "unit"), [(True, True), (False, False)])
def test_demodulated_kernels_have_norm_one_per_output_channel_whatever_the_style(demodulate, unit):
    """What comes out for a single bright pixel of one input channel is that channel's part of the kernel."""
    impulses = torch.zeros(6, 6, 3, 3, dtype=torch.float64)
    impulses[range(6), range(6), 1, 1] = 1
    for seed in range(3):
        s = (5 * normal(1, 6, seed=seed)).expand(6, -1)
        out = modulated_convolution(impulses, normal(4, 6, 3, 3, seed=9), s, demodulate=demodulate)
        norms = out.square().sum((0, 2, 3)).sqrt()
        assert torch.allclose(norms, torch.ones(4, dtype=norms.dtype), atol=1e-6) == unit


def test_enlarged_images_are_smoothed_among_zeros_and_keep_their_brightness():
    image = normal(1, 3, 5, 4)
    for c in range(3):
        expected = convolve2d(np.pad(with_zeros_between(image[0, c].numpy()), ((2, 3), (2, 3))), FILTER, "valid")
        np.testing.assert_allclose(enlarged(image)[0, c], expected[:10, :8], atol=1e-12)
    inside = enlarged(torch.ones(1, 2, 5, 5))[:, :, 2:-2, 2:-2]
    torch.testing.assert_close(inside, torch.ones_like(inside))


@pytest.mark.parametrize("dimension", [64, 256])
def test_mapping_has_an_equalised_learning_rate(dimension):
    """The parameters are N(0, 1) / 0.01, and enter times 0.01 / sqrt(D)."""
    z = normal(500, dimension, seed=1).float()
    w = Generator(4, dimension, rng(0, "test")).map(z)
    parameters = rng(0, "test").standard_normal((dimension, dimension)) / 0.01
    unit = z.double().numpy() / np.sqrt(np.mean(z.double().numpy() ** 2, axis=1, keepdims=True))
    before = unit @ (parameters * 0.01 / np.sqrt(dimension)).T
    np.testing.assert_allclose(w, np.sqrt(2) * np.where(before > 0, before, 0.2 * before), atol=2e-5)
    assert w.square().mean().item() == pytest.approx(1.04, abs=0.1)


def test_length_of_a_latent_vector_does_not_matter():
    generator, z = Generator(8, 64, rng(0, "test")), normal(5, 64).float()
    torch.testing.assert_close(generator(7 * z), generator(z), atol=1e-4, rtol=1e-4)


def test_image_is_the_sum_of_what_every_resolution_adds():
    generator, z = Generator(16, 64, rng(0, "test")), normal(2, 64).float()
    whole, blocks = generator(z), generator.blocks
    assert whole.shape == (2, 3, 16, 16) and len(blocks) == 3
    parts = []
    for chosen in range(3):
        generator.blocks = [
            block if number == chosen else block._replace(to_rgb=block.to_rgb._replace(kernel=torch.zeros(3, 64, 1, 1)))
            for number, block in enumerate(blocks)
        ]
        parts.append(generator(z))
    torch.testing.assert_close(sum(parts), whole, atol=1e-4, rtol=1e-4)
    assert all(part.abs().mean() > 0.1 for part in parts)


def test_styles_are_spread_around_one_and_feature_maps_keep_their_scale():
    generator, z = Generator(32, 64, rng(1, "test")), normal(20, 64).float()
    w = generator.map(z)
    styles = torch.cat([layer.style(w).flatten() for block in generator.blocks for layer in block.layers])
    assert styles.mean().item() == pytest.approx(1, abs=0.2) and styles.std().item() == pytest.approx(1, abs=0.2)
    assert 0.5 < generator(z).std() / len(generator.blocks) ** 0.5 < 2


# -- the images


def nearest_mean_accuracy(images: np.ndarray) -> float:
    """Share of the second half of images [classes, per_class, ...] that are nearest to their class's first half."""
    pixels = torch.from_numpy(images).flatten(2).float()
    seen, held_out = pixels.chunk(2, dim=1)
    nearest = torch.cdist(held_out, seen.mean(1)).argmin(2)
    return (nearest == torch.arange(len(images))[:, None]).double().mean().item()


@pytest.mark.parametrize(("classes", "per_class", "least"), [(10, 60, 0.6), (50, 20, 0.6)])
def test_images_are_nearer_to_the_mean_of_their_class_than_to_others(classes, per_class, least):
    assert nearest_mean_accuracy(stylegan_images((3, 8, 8), classes, per_class, seed=3)) > least


def test_classes_differ_by_their_latent_mean_only(monkeypatch):
    monkeypatch.setattr(stylegan, "MEAN", 0.0)
    images = stylegan._new_images((3, 8, 8), 10, 60, 3)
    assert nearest_mean_accuracy(images) == pytest.approx(0.1, abs=4 * (0.09 / 300) ** 0.5)
    assert images.std(axis=(0, 1)).mean() > 60


def test_images_are_the_clipped_output_of_one_generator_around_each_class_mean():
    generator = Generator(8, 64, rng(5, "stylegan"))
    images = stylegan_images((3, 8, 8), 2, 3, 5)
    for c in range(2):
        stream = rng(5, "stylegan latents", 0, c)
        z = 0.5 * stream.standard_normal(64) + 0.3 * stream.standard_normal((3, 64))
        expected = 255 * generator(torch.from_numpy(z).float()).clip(0, 1).double()
        assert np.abs(images[c] - expected.numpy()).max() < 0.5 + 1e-3


def test_many_classes_have_a_larger_latent_space_with_a_smaller_spread():
    assert [stylegan.latent_space(n) for n in (2, 10, 62, 100, 200)] == [(64, 0.3)] * 2 + [(256, 0.2)] * 2 + [
        (256, 0.15)
    ]


def test_smaller_and_grey_images_are_what_pillow_makes_of_the_larger_ones():
    """As the authors' loader does, which reduces and converts 8-bit images."""
    color = stylegan_images((3, 16, 16), 2, 5, 0)
    small, grey = stylegan_images((3, 14, 12), 2, 5, 0), stylegan_images((1, 14, 14), 2, 5, 0)
    for index in np.ndindex(2, 5):
        image = Image.fromarray(np.moveaxis(color[index], 0, -1))
        resized = np.moveaxis(np.asarray(image.resize((12, 14), Image.Resampling.BILINEAR)), -1, 0)
        assert np.abs(small[index].astype(int) - resized).max() <= 2
        resized = np.asarray(image.convert("L").resize((14, 14), Image.Resampling.BILINEAR))
        assert np.abs(grey[index][0].astype(int) - resized).max() <= 2


@pytest.mark.parametrize("channels", [2, 4])
def test_other_numbers_of_channels_are_refused(channels):
    with pytest.raises(ValueError, match=f"images of 1 or 3 channels, not of {channels}: choose gaussian"):
        surrogate_set("stylegan", (channels, 8, 8), 10)


# -- the same bytes


def test_seed_decides_every_byte():
    assert (stylegan._new_images(*SMALL) == stylegan._new_images(*SMALL)).all()
    assert (stylegan._new_images(*SMALL) != stylegan._new_images(*SMALL[:3], 1)).mean() > 0.3


def test_number_of_threads_does_not_matter_and_is_left_as_it_was():
    shape = (3, 32, 32)
    alone = stylegan._new_images(shape, 2, 13, 0)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        assert (stylegan._new_images(shape, 2, 13, 0) == alone).all()
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(threads)


# -- the files they are kept in


def refuse(*_: object) -> None:
    raise AssertionError("the images were made again")


def test_images_that_are_kept_are_those_of_a_fresh_making(monkeypatch, folder):
    first = stylegan_images(*SMALL)
    assert (first == stylegan._new_images(*SMALL)).all()
    monkeypatch.setattr(stylegan, "_new_images", refuse)
    again = stylegan_images(*SMALL)
    assert again.dtype == np.uint8 and again.shape == (3, 4, 3, 8, 8) and (again == first).all()
    again[...] = 0  # is a copy
    assert (stylegan_images(*SMALL) == first).all()
    assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == [stylegan._file(*SMALL).name]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:100],
        lambda content: b"",
        lambda content: bytes([content[0] ^ 1]) + content[1:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content + b"more",
    ],
    ids=["cut off", "half-written", "empty", "image", "check", "longer"],
)
def test_damaged_file_counts_as_absent_and_is_replaced(damage):
    first, path = stylegan_images(*SMALL), stylegan._file(*SMALL)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert (stylegan_images(*SMALL) == first).all()
    assert path.read_bytes() == whole


def test_other_arguments_code_and_libraries_have_other_files(monkeypatch):
    files = {stylegan._file(*SMALL)}
    files |= {stylegan._file((3, 8, 8), *rest) for rest in ((4, 3, 0), (3, 4, 1), (3, 5, 0))}
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "3.0")
        files.add(stylegan._file(*SMALL))
    monkeypatch.setattr(stylegan, "_CODE", stylegan._CODE + b"\n")
    files.add(stylegan._file(*SMALL))
    assert len(files) == 6


def test_folder_that_cannot_be_written_costs_no_images(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / "file"))
    assert (stylegan_images(*SMALL) == stylegan._new_images(*SMALL)).all()


def test_a_long_wait_for_them_is_said(monkeypatch):
    said = []
    monkeypatch.setattr(stylegan, "tqdm", lambda classes, desc, delay, **_: said.append((desc, delay)) or classes)
    stylegan._new_images(*SMALL)
    assert said == [("surrogate images", stylegan.PATIENCE)] and stylegan.PATIENCE < 10


def test_of_several_that_need_them_at_once_one_makes_them(monkeypatch):
    made, results, new = [], [], stylegan._new_images

    def counted(*arguments):
        made.append(arguments)
        return new(*arguments)

    monkeypatch.setattr(stylegan, "_new_images", counted)
    threads = [threading.Thread(target=lambda: results.append(stylegan_images(*SMALL))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(results) == 4 and all((images == results[0]).all() for images in results)
