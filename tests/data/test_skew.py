"""Feature skew: noise and rotation that grow from client to client."""

from collections.abc import Iterator

import pytest
import torch

from paperlib import Experiment, run
from paperlib.data import load
from paperlib.data.datasets import Dataset
from paperlib.data.skew import skewed
from paperlib.runs.prepare import dataset_of, parts_of, prepare

CLIENTS = 5
E = Experiment(
    dataset="digits", train_size=300, test_size=101, model="mlp", width=0.125, partition="iid", alpha=None,
    clients=CLIENTS, sampled=2, rounds=2, image_noise=0.2,
)  # fmt: skip


@pytest.fixture
def grey() -> Dataset:
    """Images of one middle grey, on which noise is never limited."""
    data = load("digits", train_size=300, test_size=101)
    images = torch.full((300, 3, 28, 20), 128, dtype=torch.uint8)
    return Dataset(
        "grey", images, data.train_labels, images[:101], data.test_labels, data.classes, (0.5,) * 3, (0.2,) * 3, "grey"
    )


def every_fifth(n: int) -> list[torch.Tensor]:
    return [torch.arange(client, n, CLIENTS) for client in range(CLIENTS)]


def of_clients(data: Dataset) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Training and test images of each client."""
    return zip(
        (data.train_images[part] for part in every_fifth(300)), data.test_images.tensor_split(CLIENTS), strict=True
    )


def test_the_spread_of_the_noise_grows_evenly_from_none_to_sigma(grey):
    noisy = skewed(grey, every_fifth(300), 0.08, 0.0, seed=1)
    for client, images in enumerate(of_clients(noisy)):
        for some in images:
            noise = (some.double() - 128) / 255
            expected = ((0.08 * client / 4) ** 2 + (client > 0) / 12 / 255**2) ** 0.5  # pixels are rounded to bytes
            assert float(noise.std()) == pytest.approx(expected, rel=0.02)
            assert abs(float(noise.mean())) < 5 * expected / noise.numel() ** 0.5 + 1e-12
    assert (grey.train_images == 128).all() and (grey.test_images == 128).all()


def test_noise_differs_between_images_clients_splits_and_seeds_and_is_otherwise_the_same(grey):
    parts = every_fifth(300)
    first, again, other = (skewed(grey, parts, 0.1, 0.0, seed) for seed in (1, 1, 2))
    assert torch.equal(first.train_images, again.train_images) and torch.equal(first.test_images, again.test_images)
    images = [first.train_images[3], first.train_images[4], first.train_images[8], first.test_images[-1]]
    images += [other.train_images[3]]
    assert len({image.numpy().tobytes() for image in images}) == len(images)


def test_images_do_not_depend_on_torchs_settings_or_random_state(grey):
    parts = every_fifth(300)
    expected = skewed(grey, parts, 0.1, 30.0, seed=1)
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = skewed(grey, parts, 0.1, 30.0, seed=1)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)
    assert torch.equal(found.train_images, expected.train_images)
    assert torch.equal(found.test_images, expected.test_images)


def test_clients_images_are_turned_counterclockwise_by_evenly_growing_angles():
    data = load("digits", train_size=300, test_size=101)
    turned = skewed(data, every_fifth(300), 0.0, 360.0, seed=0)
    pairs = zip(of_clients(data), of_clients(turned), strict=True)
    for quarters, (upright, images) in enumerate(pairs):
        for before, after in zip(upright, images, strict=True):
            assert torch.equal(after, torch.rot90(before, quarters, (2, 3)))


def test_an_angle_between_turns_the_centre_of_mass_by_it():
    """A spot right of the centre of an image that is not square."""
    images = torch.zeros(2, 1, 41, 61, dtype=torch.uint8)
    images[:, :, 19:22, 44:47] = 240
    labels = torch.tensor([0, 1])
    data = Dataset("spot", images, labels, images, labels, ("a", "b"), (0.5,), (0.2,), "spot")
    turned = skewed(data, [torch.tensor([0]), torch.tensor([1])], 0.0, 30.0, seed=0).train_images[1, 0].double()
    row = (turned.sum(1) @ torch.arange(41.0).double() / turned.sum()) - 20
    column = (turned.sum(0) @ torch.arange(61.0).double() / turned.sum()) - 30
    assert float(column) == pytest.approx(15 * 3**0.5 / 2, abs=0.05)
    assert float(row) == pytest.approx(-7.5, abs=0.05)


def test_samples_of_no_client_and_clients_without_samples_are_left_alone(grey):
    parts = [torch.arange(10), torch.arange(0), torch.arange(100, 110)]
    noisy = skewed(grey, parts, 0.1, 10.0, seed=0)
    changed = (noisy.train_images != 128).flatten(1).any(1).nonzero()[:, 0]
    assert changed.tolist() == list(range(100, 110))


def test_a_run_trains_on_the_skewed_images_and_is_tested_on_them():
    data = dataset_of(E)
    expected = skewed(load("digits", train_size=300, test_size=101), parts_of(E, data), 0.2, 0.0, seed=0)
    method, progress = prepare(E, data)
    assert torch.equal(method.context.data.train_images, expected.train_images)
    assert torch.equal(progress.test.test_images, expected.test_images)
    assert torch.equal(dataset_of(E.replace(seed=1)).train_images, expected.train_images)
    assert not torch.equal(dataset_of(E.replace(partition_seed=1)).train_images, expected.train_images)
    plain = dataset_of(E.replace(image_noise=0.0))
    assert plain.train_images is load("digits", train_size=300, test_size=101).train_images


def test_a_skewed_run_has_the_same_bits_again_and_others_without_the_skew(store):
    first, again = run(E, store=store), run(E, store=store.with_name("again"))
    assert torch.equal(first.parameters, again.parameters)
    for changes in ({"image_noise": 0.1}, {"image_noise": 0.0}, {"image_noise": 0.0, "image_rotation": 45.0}):
        assert not torch.equal(run(E.replace(**changes), store=store).parameters, first.parameters)
