"""Class errors and the adaptability risk."""

import pytest
import torch

from fedacd_theory import adverse_priors
from paperlib.quantities.risk import adaptability_risk, client_accuracy
from paperlib.random_streams import rng

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 3])
PREDICTIONS = torch.tensor([0, 0, 0, 1, 0, 3, 3])


def test_risk_is_the_error_rate_averaged_over_the_clients_own_samples():
    counts = torch.tensor([[4, 0, 0, 1], [0, 3, 0, 3]])
    errors = torch.tensor([0.25, 1, float("nan"), 0], dtype=torch.float64)
    assert adaptability_risk(errors, counts) == pytest.approx((0.8 * 0.25 + 0.5 * 1) / 2)
    assert client_accuracy(errors, counts) == pytest.approx(100 - 100 * 0.35)


def test_every_client_counts_the_same_however_many_samples_it_holds():
    errors, counts = torch.tensor([0.0, 1.0]), torch.tensor([[1000, 0], [0, 1]])
    assert adaptability_risk(errors, counts) == 0.5


def test_counts_and_shares_give_the_same_risk():
    counts = torch.from_numpy(rng(0, "test/counts").integers(1, 50, (7, 5)))
    errors = torch.linspace(0, 1, 5)
    shares = counts / counts.sum(1, keepdim=True).double()
    assert adaptability_risk(errors, counts) == pytest.approx(adaptability_risk(errors, shares), abs=1e-15)


def test_risk_is_the_error_on_the_clients_test_sets_in_the_sample():
    """Clients' test sets are cut out class by class in proportion to their counts: the mean error is exact."""
    counts = torch.tensor([[2, 2, 0, 0], [4, 0, 0, 1]])
    wrong = (PREDICTIONS != LABELS).double()
    of_class = torch.bincount(LABELS, minlength=4)
    errors = torch.bincount(LABELS, wrong, minlength=4) / of_class
    weights = counts[:, LABELS].double() / of_class[LABELS]  # a client's share of every test sample
    direct = (weights @ wrong / weights.sum(1)).mean()
    assert adaptability_risk(errors, counts) == pytest.approx(float(direct), abs=1e-15)


def test_what_makes_no_risk_is_refused():
    with pytest.raises(ValueError, match="client 1 holds no samples"):
        adaptability_risk(torch.ones(2), torch.tensor([[1, 0], [0, 0]]))
    with pytest.raises(ValueError, match="hold class 1, but its error is unknown"):
        adaptability_risk(torch.tensor([0.5, float("nan")]), torch.tensor([[1, 1]]))


def test_no_adversary_without_unequal_errors_or_other_clients():
    prior = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="all errors are 0.2"):
        adverse_priors(prior, torch.tensor([0.2, 0.2], dtype=torch.float64), 3, 0.1)
    with pytest.raises(ValueError, match="clients = 1 leaves no other client"):
        adverse_priors(prior, torch.tensor([0.2, 0.3]), 1, 0.1)
