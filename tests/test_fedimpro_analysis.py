"""FedImpro's quantities on the model of a run."""

import numpy as np
import pytest
import torch

from fedimpro_analysis import feature_distance, variance_by_draws
from paperlib import Experiment, run
from paperlib.papers.fedimpro.analysis import clients_of, from_features, from_means, private_images

E = Experiment(
    dataset="digits", model="cnn", width=0.25, clients=4, sampled=4, rounds=3, alpha=0.3, min_samples=20,
    batch_size=32, lr=0.05, momentum=0.0, train_size=400, test_size=50,
    method="fedimpro", method_options={"schedule": "constant", "beta_m": 0},
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(E, store=tmp_path_factory.mktemp("runs"))


def test_the_same_drawn_features_reduce_the_variance_as_theorem_4_2_says(finished):
    table = variance_by_draws(finished)
    np.testing.assert_allclose(table["same"], table["predicted"], rtol=1e-10)
    assert table["same"].iloc[0] == table["own"].iloc[0] > 0
    assert (table["own"] != table["same"]).tolist() == [False, True, True, True]  # the term that the theorem omits
    np.testing.assert_allclose(table["own"], table["same"], rtol=0.1)


def test_distance_leaves_out_the_labels_of_one_side_only(finished):
    table = feature_distance(finished)
    assert (table.distance > 0).all() and table.left_out.between(0, 1).all()


def test_shared_means_are_those_of_the_clients_that_have_the_class(finished):
    clients = clients_of(finished)
    for c in range(10):
        means = [h[y == c].mean(0) for h, y in zip(clients.h, clients.y, strict=True) if (y == c).any()]
        assert 0 < len(means) <= 4
        np.testing.assert_allclose(clients.mu[c], torch.stack(means).mean(0), atol=1e-6)
    assert 0 < clients.s.max() <= 0.1  # the authors' bound on the spread


def test_an_image_comes_back_from_its_own_feature_and_not_from_the_mean(finished):
    own = from_features(finished, images=3, steps=150)[1].correlation.mean()
    mean = from_means(finished, images=3, noise=(0.0, 2.0), steps=150)[1].groupby("from").correlation.mean()
    assert own > 0.95 > mean["mean, noise 0"] > mean["mean, noise 2"]
    assert own > mean["mean image"]
    assert private_images(finished, images=3)[1]["class"].tolist() == [0, 1, 2]


def test_a_run_of_another_method_is_refused(finished, tmp_path):
    other = run(E.replace(method="fedavg", method_options={}, rounds=1), store=tmp_path)
    with pytest.raises(ValueError, match="the analysis is of a run of fedimpro, not of fedavg"):
        variance_by_draws(other)
