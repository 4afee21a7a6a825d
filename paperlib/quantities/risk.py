"""Adaptability: what one model costs on the class priors of all clients (FedACD, section 3).

errors: float64 [C], share of each class that a model gets wrong, eps in the paper; priors: [clients, C], each client's
label counts or shares, pi in the paper. Clients share the distributions within a class and differ in the priors only.
"""

from torch import Tensor


def adaptability_risk(errors: Tensor, priors: Tensor) -> float:
    """Mean over the clients of eps . pi_n, from 0 to 1; every client counts the same (Eq. 1-3).

    With the same error in every class it is that error, whatever the priors (Eq. 4).
    Raises ValueError for a client without samples, or if a class that clients hold has no error.
    """
    priors = priors.double().cpu()
    sizes = priors.sum(1, keepdim=True)
    if (sizes <= 0).any():
        n = int((sizes <= 0).nonzero()[0, 0])
        raise ValueError(f"client {n} holds no samples, so that it has no class prior")
    mean = (priors / sizes).mean(0)
    held, errors = mean > 0, errors.double().cpu()
    if (held & errors.isnan()).any():
        c = int((held & errors.isnan()).nonzero()[0])
        raise ValueError(f"clients hold class {c}, but its error is unknown: there was no test sample of it")
    return float(errors[held] @ mean[held])


def client_accuracy(errors: Tensor, priors: Tensor) -> float:
    """Mean over the clients of the accuracy on a test set that follows their prior, in percent (Table 2).

    Exact, where test sets cut out for the clients would estimate it.
    """
    return 100 * (1 - adaptability_risk(errors, priors))
