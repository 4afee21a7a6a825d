"""Adaptability: what one model costs on the class priors of all clients (FedACD, section 3).

errors: float64 [C], share of each class that a model gets wrong, eps in the paper; priors: [clients, C], each client's
label counts or shares, pi in the paper. Clients share the distributions within a class and differ in the priors only.
"""

import torch
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


def adverse_priors(prior: Tensor, errors: Tensor, clients: int, theta: float) -> Tensor:
    """The prior [C] of each of the other clients that Theorem 1 constructs against a model with unequal errors.

    prior: [C], of the client whose model it is. The mean prior of all clients becomes 1/C, with theta / clients moved
    from the best class s to the worst class r, so that the risk is mean(eps) + theta / clients (eps_r - eps_s). A
    negative theta swaps the roles and favors the model. For 0 < theta < 1/C it works whenever clients > classes.
    Raises ValueError if an entry would be negative, if all errors are equal (no priors change the risk then), and if
    there is no other client.
    """
    if clients < 2:
        raise ValueError(f"clients = {clients} leaves no other client whose prior could be chosen; take 2 or more")
    prior, errors = prior.double(), errors.double()
    classes, worst, best = len(errors), int(errors.argmax()), int(errors.argmin())
    if errors[worst] == errors[best]:
        raise ValueError(f"all errors are {float(errors[0]):g}: no priors make such a model better or worse")
    shift = torch.zeros(classes, dtype=torch.float64)
    shift[worst], shift[best] = theta, -theta
    others = 1 / classes + (1 / classes - prior + shift) / (clients - 1)
    if (others < 0).any():
        c = int(others.argmin())
        raise ValueError(
            f"with {clients} clients and {classes} classes the other clients' share of class {c} would be "
            f"{float(others[c]):.6f}: its own share {float(prior[c]):g} is too large for theta = {theta:g}"
        )
    return others
