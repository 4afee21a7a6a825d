"""Checks of the exercises in the notebooks that explain the five methods; see `checks`."""

import torch
from checks import SETTING, Hint, bound, call, check, draws, exercise, same

from paperlib.methods import build
from paperlib.methods.fedimpro import FedImpro
from paperlib.methods.gc import Centralized
from paperlib.methods.math.gaussians import class_moments
from paperlib.methods.math.label_matrix import SLACK, score, template_divergence
from paperlib.methods.math.losses import flatness_loss
from paperlib.methods.math.vectors import without_own
from paperlib.oneshot import aggregation, stratification

__all__ = ["check"]


# -- GC-Fed


@exercise("GC-Fed 1")
def projection_matrix(projection: object) -> str:
    for m in (3, 5):
        result, expected = call(projection, m), torch.eye(m) - 1 / m
        if same(result, torch.eye(m) - 1):
            raise Hint("the entries of the matrix of ones are divided by m; without that it is no mean.")
        if same(result, torch.full((m, m), 1 / m)):
            raise Hint("this takes the mean itself; P takes it away.")
        if not same(result, expected):
            raise Hint("the result is [m, m]; multiplied with a vector it must return the vector minus its mean.")
    return "right; it is symmetric, and its square is itself."


@exercise("GC-Fed 2")
def centered_convolution(center_convolution: object) -> str:
    G = draws(4, 3, 2, 2)
    result = call(center_convolution, G)
    if same(result, G - G.mean((2, 3), keepdim=True)):
        raise Hint("this gives every pair of channels a mean of its own; all inputs of an output share one.")
    if same(result, G - G.mean()):
        raise Hint("this subtracts one mean of all outputs together.")
    if not same(result, G - G.mean((1, 2, 3), keepdim=True)):
        raise Hint("dimension 0 counts the outputs; the mean goes over all the others, and keeps its place.")
    return "right, this is mean='Cout' of the library, the paper's choice in Table 8."


@exercise("GC-Fed 3")
def removed_share(removed: object) -> str:
    G = draws(4, 6) + 1
    method = bound(build("local_gc"))
    assert isinstance(method, Centralized)
    result, kept = call(removed, G), (G - G.mean(1, keepdim=True)).square().sum() / G.square().sum()
    if same(result, kept):
        raise Hint("this is the share that P keeps.")
    if same(result, (1 - kept).sqrt()):
        raise Hint("compare squared lengths: only these add up.")
    if not same(result, 1 - kept):
        raise Hint(
            "what P removes and what it keeps are at right angles, so their squared lengths add up to that of G."
        )
    return "right; in layers behind a ReLU this share is far above chance, as notebook 3 of the course shows."


# -- FedACD


@exercise("FedACD 1")
def worst_flatness(one_rival: object) -> str:
    for p_y, classes in ((0.4, 6), (0.9, 10)):
        result = call(one_rival, p_y, classes)
        logits = torch.full((classes,), -60.0, dtype=torch.float64)
        logits[0], logits[1] = torch.tensor([p_y, 1 - p_y], dtype=torch.float64).log()
        expected = float(flatness_loss(logits[None], torch.tensor([0])))
        if same(result, expected / (1 - p_y)):
            raise Hint("this would be right if nothing were left for the true class.")
        if same(result, -expected):
            raise Hint("a divergence is never negative.")
        if not same(result, expected):
            raise Hint("p is 1 - p_y for the rival where q is (1 - p_y) / (C - 1); the other terms are zero.")
    return "right; it grows with the number of classes, and vanishes as p_y comes near 1."


@exercise("FedACD 2")
def divergence_of_a_row(row_divergence: object) -> str:
    for p in (torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.05, 0.9, 0.05])):
        y = int(p.argmax())
        matrix = torch.eye(3, dtype=torch.float64)
        matrix[y] = p.double()
        counts = torch.zeros(3, dtype=torch.int64)
        counts[y] = 1
        result, expected = call(row_divergence, p.double(), y), template_divergence(matrix, counts)
        q = torch.full((3,), SLACK / 2, dtype=torch.float64)
        q[y] = 1 - SLACK
        if same(result, (q * (q / p).log()).sum()):
            raise Hint("the divergence has a direction: here it is weighted by p.")
        if not same(result, expected):
            raise Hint("Q has 1 - 1e-5 at y and 1e-5 / (C - 1) elsewhere; sum p log(p / q) over all classes.")
    return "right; the 1e-5 under the logarithm makes small errors expensive."


@exercise("FedACD 3")
def weighted_by_score(average: object) -> str:
    models, kl = draws(3, 4).double(), torch.tensor([0.6, 1.0, 5.0], dtype=torch.float64)
    V = score(kl)
    result = call(average, models, kl)
    if same(result, V @ models):
        raise Hint("the weights are in the right proportion, but they must sum to one.")
    if same(result, models.mean(0)):
        raise Hint("this is FedAvg, in which the divergences play no role.")
    if same(result, (kl / kl.sum()) @ models):
        raise Hint("here the furthest from the template counts most; V falls as the divergence grows.")
    if same(result, (1 / kl) / (1 / kl).sum() @ models):
        raise Hint("nearly: a sigmoid stands around 1 / KL.")
    if not same(result, (V / V.sum()) @ models):
        raise Hint("first V of every client, then its share of the sum, then the weighted sum of the models.")
    return "right; as V lies between one half and one, no client counts twice as much as another."


# -- FedGPS


@exercise("FedGPS 1")
def shift_of_a_client(shift: object) -> str:
    updates = draws(4, 6)
    mean = updates.mean(0)
    for own in (updates[1], None):
        v = without_own(mean, torch.tensor(4), own)
        assert v is not None
        result = call(shift, mean, 4, own, 0.5)
        if own is not None and same(result, 0.5 * mean / mean.norm()):
            raise Hint("the mean holds the client's own update, which must go.")
        if same(result, 0.5 * v):
            raise Hint("the direction is right; the length must be lambda_g, whatever the others did.")
        if own is None and same(result, 0.5 * (4 * mean) / (3 * mean).norm()):
            raise Hint("a client that did not take part has nothing in the mean.")
        if not same(result, 0.5 * v / v.norm()):
            raise Hint("from the mean to the sum of the others; for own = None the mean stays. Then scale to lambda_g.")
    return "right; the library's Definition 4.5 and Eq. 7 in one function."


@exercise("FedGPS 2")
def gradient_ahead(local_step: object) -> str:
    h, center, theta, e = torch.tensor([1.0, 3.0]), torch.tensor([2.0, -1.0]), draws(2), torch.tensor([0.3, 0.4])

    def gradient(w: torch.Tensor) -> torch.Tensor:
        return h * (w - center)

    result, expected = call(local_step, theta, gradient, e, 0.1), theta - 0.1 * gradient(theta + e)
    if same(result, theta + e - 0.1 * gradient(theta + e)):
        raise Hint("the step starts from theta itself; the shift serves the gradient alone.")
    if same(result, theta - 0.1 * gradient(theta)):
        raise Hint("this is plain SGD; where is the gradient taken?")
    if same(result, theta + 0.1 * gradient(theta + e)):
        raise Hint("a step goes against the gradient.")
    if not same(result, expected):
        raise Hint("one gradient, at theta + e; one step, from theta.")
    return "right; it costs one gradient, as plain SGD does."


@exercise("FedGPS 3")
def class_prototypes(prototypes: object) -> str:
    z, y = draws(7, 3), torch.tensor([0, 2, 2, 0, 1, 2, 0])
    n, mean, _ = class_moments(z, y, 3)
    result = call(prototypes, z, y, 3)
    if same(result, n * mean):
        raise Hint("these are sums; divide each by the number of its class.")
    if same(result, n * mean / len(z)):
        raise Hint("each class is divided by its own number of features.")
    if not same(result, mean):
        raise Hint("a row per class: the mean of the features with that label.")
    return "right; beside the model these C d numbers are all that a client adds to its upload."


# -- FedHydra


@exercise("FedHydra 1")
def two_shares(normalise: object) -> str:
    U = draws(4, 3).abs()
    result, (U_r, U_c) = call(normalise, U), stratification.normalised(U)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Hint("the result is a pair: U_r, then U_c.")
    if same(result[0], U_c) and same(result[1], U_r):
        raise Hint("both are right, in the other order: U_r has rows that sum to one.")
    if not same(result[0], U_r):
        raise Hint("divide every row by its sum first: dimension 1 runs over the clients, and must be kept.")
    if not same(result[1], U_c):
        raise Hint("U_r is right; for U_c divide every column by its own sum.")
    return "right."


@exercise("FedHydra 2")
def teacher_of_one_image(teacher: object) -> str:
    logits, y = draws(3, 4), 2
    U_r, U_c = stratification.normalised(draws(4, 3, seed=1).abs())
    expected = aggregation.stratified(logits[:, None], torch.tensor([y]), U_r, U_c)[0]
    result = call(teacher, logits, y, U_r, U_c)
    if same(result, U_r[y] @ logits):
        raise Hint("this weighs the clients and leaves out U_c, which weighs the classes of each.")
    if same(result, (U_c.T * logits).sum(0)):
        raise Hint("this leaves out U_r, which says whom to ask about y.")
    if not same(result, expected):
        raise Hint("client k counts by U_r[y, k]; its logit of class j counts by U_c[j, k]. Sum over the clients.")
    return "right, this is Eq. 11 for one image."


@exercise("FedHydra 3")
def uniform_weights(factor: object) -> str:
    for m, c in ((2, 3), (5, 10)):
        logits = draws(m, 1, c)
        U_r, U_c = stratification.normalised(torch.ones(c, m))
        teacher = aggregation.stratified(logits, torch.tensor([0]), U_r, U_c)
        expected, result = float((teacher / aggregation.averaged(logits)).mean()), call(factor, m, c)
        if same(result, 1 / m):
            raise Hint("the division by m is in the averaging ensemble as well; what else is divided?")
        if same(result, 1):
            raise Hint("the columns of U_c sum to one over c classes, so that every entry is small.")
        if not same(result, expected):
            raise Hint("with equal scores U_r is 1/m everywhere and U_c is 1/c; insert both.")
    return "right: the teacher is the ensemble at temperature c, softer than its members."


# -- FedImpro


@exercise("FedImpro 1")
def running_statistics(follow: object) -> str:
    h, mu, sigma = draws(5, 3), draws(3, seed=1), draws(3, seed=2).abs()
    _, mean, variance = class_moments(h, torch.zeros(5, dtype=torch.int64), 1)
    expected = 0.9 * mu + 0.1 * mean[0], 0.9 * sigma + 0.1 * variance[0].sqrt()
    result = call(follow, mu, sigma, h, 0.9)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Hint("the result is a pair: the new mean and the new spread.")
    if same(result[0], 0.1 * mu + 0.9 * mean[0]):
        raise Hint("beta weighs the old value; the batch gets what is left to one.")
    if not same(result[0], expected[0]):
        raise Hint("look at the mean first: beta times the old one and 1 - beta times that of the batch.")
    if same(result[1], 0.9 * sigma + 0.1 * variance[0]):
        raise Hint("the mean is right; the spread is a standard deviation here, as in the authors' code.")
    if not same(result[1], expected[1]):
        raise Hint(
            "the mean is right; the spread follows the same rule with the batch's standard deviation (unbiased)."
        )
    return "right, this is Eq. 6."


@exercise("FedImpro 2")
def features_drawn(sample: object) -> str:
    mu, sigma, z, y = draws(3, 2), draws(3, 2, seed=1).abs(), draws(4, 2, seed=2), torch.tensor([0, 2, 1, 2])
    result = call(sample, mu, sigma, z, y)
    if same(result, mu[y] + z):
        raise Hint("the noise is scaled by the spread of the class.")
    if same(result, mu[y] + sigma[y].square() * z):
        raise Hint("the noise is scaled by the standard deviation, not by its square.")
    if not same(result, mu[y] + sigma[y] * z):
        raise Hint("row i belongs to class y[i]: its mean, plus its spread times z[i].")
    return "right; no client's feature is among them."


@exercise("FedImpro 3")
def weight_of_the_drawn(weight: object) -> str:
    method = bound(build("fedimpro", {"schedule": "ramp"}))
    assert isinstance(method, FedImpro)
    epochs = SETTING.local_epochs
    for round in (1, 2, 300):
        result, expected = call(weight, round, epochs, 500), method.fake_weight(round)
        if same(result, round * epochs / 500):
            raise Hint("before round 1 no epoch is done: the first weight is zero.")
        if same(result, (round - 1) / 500) and round > 1:
            raise Hint("a round has several local epochs, and all of them count.")
        if not same(result, expected):
            raise Hint("count the local epochs that lie behind a client at the start of the round.")
    return "right; the authors' runs let it grow beyond one."
