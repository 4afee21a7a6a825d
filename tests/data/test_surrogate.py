"""Surrogate data: the formula, the same bytes everywhere, and batches of it."""

import hashlib
from functools import partial

import pytest
import torch
from torch.nn.functional import interpolate

from paperlib.data import surrogate as module
from paperlib.data.batches import crop_and_flip, normalise
from paperlib.data.surrogate import surrogate_batch, surrogate_set
from paperlib.random_streams import rng

gaussian_surrogate = partial(surrogate_set, "gaussian")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digest(surrogate: module.Surrogate) -> str:
    return hashlib.sha256(surrogate.images.numpy().tobytes()).hexdigest()


# -- the images


@pytest.mark.parametrize(
    ("shape", "seed", "bytes_"),
    [
        ((3, 32, 32), 0, "8fab47b9fb4032728db44c93bdafee33ea3253fd43c19598a3539b647bbcffbc"),
        ((1, 28, 28), 0, "f5f3e9133a1fa5721f1b4df4003be2570fc4673c18df5e4b90f42ede866ce53e"),
    ],
)
def test_same_seed_gives_the_same_bytes_on_every_machine(shape, seed, bytes_):
    assert digest(gaussian_surrogate(shape, 10, 200, seed)) == bytes_


def test_other_seed_gives_other_bytes():
    sets = [gaussian_surrogate((3, 32, 32), 3, 5, seed) for seed in (0, 1)]
    assert (sets[0].images != sets[1].images).double().mean() > 0.5


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 20), (2, 5, 7)])
def test_images_are_clipped_enlargements_of_gaussians_around_the_class_mean(shape):
    channels, height, width = shape
    latent = (channels, -(-height // 4), -(-width // 4))
    surrogate = gaussian_surrogate(shape, 3, 7, seed=2)
    assert surrogate.labels.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    for c in range(3):
        stream = rng(2, "surrogate", 0, c)
        x = stream.standard_normal(latent) + 0.5 * stream.standard_normal((7, *latent))
        x = interpolate(torch.from_numpy(x), (height, width), mode="bilinear", align_corners=False)
        difference = surrogate.images[surrogate.labels == c].double() - 255 * x.clip(0, 1)
        assert difference.abs().max() < 0.5 + 1e-9


def test_about_half_of_the_pixels_are_black():
    surrogate = gaussian_surrogate((3, 32, 32), 10, 20)
    assert (surrogate.images == 0).double().mean() == pytest.approx(0.5, abs=0.03)


def test_size_of_the_chunks_does_not_change_the_images(monkeypatch):
    whole = gaussian_surrogate((1, 8, 8), 2, 250, seed=3)
    module._shared.cache_clear()
    monkeypatch.setattr(module, "_CHUNK", 7)
    assert torch.equal(gaussian_surrogate((1, 8, 8), 2, 250, seed=3).images, whole.images)


def test_classes_of_a_longer_set_begin_with_those_of_a_shorter_one():
    short, long = (gaussian_surrogate((1, 8, 8), classes, per_class) for classes, per_class in ((2, 3), (4, 9)))
    assert torch.equal(long.images.view(4, 9, 1, 8, 8)[:2, :3].flatten(0, 1), short.images)


def test_last_set_is_shared_whatever_way_it_is_asked_for():
    first = gaussian_surrogate((1, 4, 4), 5, 3)
    assert gaussian_surrogate(shape=(1, 4, 4), classes=5, per_class=3, seed=0) is first
    assert gaussian_surrogate((1, 4, 4), 5, 4) is not first


@pytest.mark.parametrize(("classes", "per_class"), [(10, 5000), (62, 806), (100, 500)])
def test_default_is_fifty_thousand_images(classes, per_class):
    assert gaussian_surrogate((1, 4, 4), classes).labels.bincount().tolist() == [per_class] * classes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (((3, 0, 32), 10), "height is 0, but must be a whole number of at least 1"),
        (((3, 32, 32), 0), "classes is 0, but must be a whole number of at least 1"),
        (((3, 32, 32), 10, 0), "per_class is 0, but must be a whole number of at least 1"),
    ],
)
def test_impossible_sizes_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        gaussian_surrogate(*arguments)


# -- batches


def test_batch_is_cropped_flipped_and_normalised_from_one_generator():
    surrogate = gaussian_surrogate((3, 16, 16), 4, 10)
    x, y = surrogate_batch(surrogate, 50, seeded(1))
    generator = seeded(1)
    chosen = torch.randint(40, (50,), generator=generator)
    shifts = torch.randint(5, (2, 50), generator=generator)
    flips = torch.randint(2, (50,), generator=generator).bool()
    images = crop_and_flip(surrogate.images[chosen], shifts, flips, 2)
    assert torch.allclose(x, (images / 255 - 0.5) / 0.25, atol=1e-6)
    assert y.tolist() == (chosen // 10).tolist()
    assert x.is_contiguous(memory_format=torch.channels_last) and x.dtype == torch.float32


def test_batches_draw_every_image_with_replacement():
    surrogate = gaussian_surrogate((1, 4, 4), 5, 4)
    generator = seeded(0)
    labels = torch.cat([surrogate_batch(surrogate, 100, generator)[1] for _ in range(40)])  # 100 of 20 images
    assert labels.bincount().tolist() == pytest.approx([800] * 5, abs=4 * (4000 * 0.2 * 0.8) ** 0.5)


def test_drawing_batches_leaves_the_images_alone():
    surrogate = gaussian_surrogate((3, 16, 16), 4, 10)
    before = surrogate.images.clone()
    x, _ = surrogate_batch(surrogate, 50, seeded(1))
    x.zero_()
    assert torch.equal(surrogate.images, before)


def test_surrogates_are_normalised_like_any_data():
    surrogate = gaussian_surrogate((3, 8, 8), 2, 3)
    assert torch.allclose(normalise(surrogate.images, surrogate), surrogate.images / 255 * 4 - 2, atol=1e-6)
