"""The setting that the runs of the course share, a look inside a round, and self-checks of the exercises.

A check compares an answer with what the library computes, and says in a sentence what is right or what to look at. It
never says the answer. Without one (``...`` or None, or a function that returns either) the exercise is open.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperlib.data.batches import normalise, split
from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.federated.context import Batch
from paperlib.federated.evaluation import Scores, evaluate
from paperlib.federated.local import start_visit
from paperlib.federated.progress import LocalModel, Progress, RoundSnapshot
from paperlib.federated.simulator import bytes_of, play_round
from paperlib.federated.uploads import Totals
from paperlib.methods import FedAvg, build
from paperlib.methods.fedimpro import FedImpro
from paperlib.methods.gc import Centralized
from paperlib.methods.math.gaussians import class_gaussians
from paperlib.methods.math.label_matrix import shift_matrix
from paperlib.methods.math.losses import flatness_loss
from paperlib.methods.math.vectors import pull, without_own
from paperlib.oneshot import aggregation, stratification
from paperlib.quantities import risk
from paperlib.runs.measures import MEASURES
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.workers import worker_pool

# What the course trains, unless a notebook says otherwise: ten clients, 600 digits, about a second.
SETTING = Experiment(
    dataset="digits", train_size=600, model="mlp", width=0.125, partition="dirichlet", alpha=0.1, clients=10, sampled=4,
    rounds=12, local_epochs=4, batch_size=20, lr=0.05, momentum=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class RoundView:
    """One round of a run, from inside.

    clients: who took part, ascending. start, after: [P], the global model before and after. models: [S, P], the
    clients' models at the end of their local epochs.
    """

    method: FedAvg
    clients: list[int]
    start: Tensor
    models: Tensor
    after: Tensor

    @property
    def updates(self) -> Tensor:
        """Each client's way from ``start``, [S, P]."""
        return self.models - self.start

    @property
    def counts(self) -> Tensor:
        """Labels of the clients that took part, int64 [S, C]."""
        return self.method.context.counts[self.clients]

    @property
    def data(self) -> Dataset:
        """The data set with its test images, which a method does not see."""
        return dataset_of(self.method.context.experiment)

    def class_accuracy(self, theta: Tensor) -> Tensor:
        """Accuracy of a model [P] on the test images of each class, float64 [C], in percent."""
        context = self.method.context
        with worker_pool(1) as pool:
            scores = evaluate(context.net, theta, context.net.initial_buffers(), self.data, pool)
        return 100 * scores.hits.double() / scores.images


def watch(experiment: Experiment, round: int, start: Tensor | None = None) -> RoundView:
    """Play a run until the end of a round (from 1), on networks without BatchNorm; nothing is stored.

    start: [P], sent to the clients in that round in place of the model that the run has by then.
    """
    method, progress = prepare(experiment, dataset_of(experiment))
    with worker_pool(1) as pool:
        while True:
            if start is not None and progress.round == round - 1:
                progress.theta = start
            sent, models = progress.theta, list[LocalModel]()
            play_round(method, progress, pool, models)
            if progress.round == round:
                thetas = torch.stack([local.theta for local in models])
                return RoundView(method, [local.client for local in models], sent, thetas, progress.theta)


def cosines(vectors: Tensor) -> Tensor:
    """Cosine of the angle between any two of n vectors: [n, P] -> [n, n]."""
    directions = torch.nn.functional.normalize(vectors, dim=1)
    return directions @ directions.T


@dataclass(frozen=True)
class Feedback:
    """A sentence about an answer; right is None while the exercise is open."""

    exercise: str
    right: bool | None
    words: str

    def __repr__(self) -> str:
        return f"Exercise {self.exercise}: {self.words}"


class Hint(Exception):
    """An answer is not right, and this is what to look at."""


class Open(Exception):
    """There is no answer yet."""


Check = Callable[[Any], str]
CHECKS: dict[str, Check] = {}


def check(exercise: str, answer: object = None) -> Feedback:
    """Judge an answer to an exercise in a sentence; raise ValueError for an unknown exercise."""
    if exercise not in CHECKS:
        raise ValueError(f"unknown exercise {exercise!r}; choose one of {', '.join(sorted(CHECKS))}")
    if answer is None or answer is ...:
        return Feedback(exercise, None, "open.")
    try:
        return Feedback(exercise, True, CHECKS[exercise](answer))
    except Open:
        return Feedback(exercise, None, "open.")
    except Hint as hint:
        return Feedback(exercise, False, str(hint))


def exercise(number: str) -> Callable[[Check], Check]:
    """Registers a check: a function that returns a sentence for a right answer, and raises `Hint` for another."""

    def register(function: Check) -> Check:
        CHECKS[number] = function
        return function

    return register


def call(function: object, *arguments: Any) -> Any:
    """Return the result of a reader's function; raise `Hint` if it stops, `Open` if it returns nothing yet."""
    if not callable(function):
        raise Hint(f"the answer is a function, not {type(function).__name__}.")
    try:
        result = function(*[a.clone() if isinstance(a, Tensor) else a for a in arguments])
    except Exception as error:  # whatever it is, the reader should see it beside the exercise
        raise Hint(f"your function stops with {type(error).__name__}: {error}.") from error
    if result is None or result is ...:
        raise Open
    return result


def same(answer: object, expected: Any, tolerance: float = 1e-4) -> bool:
    """Compare two numbers or tensors, relative to the largest expected entry."""
    try:
        a, b = np.asarray(answer, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=tolerance * max(1e-12, np.abs(b).max())))


def draws(*shape: int, seed: int = 0) -> Tensor:
    """Numbers to try a function on, float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bound(method: FedAvg) -> FedAvg:
    """A method that is bound to the setting of the course."""
    return method.setup(prepare(SETTING, dataset_of(SETTING))[0].context)


def local_step_of(method: FedAvg, theta: Tensor) -> Batch:
    """A batch of client 0 that holds nothing but what a gradient is changed by; theta [P] is what it received."""
    visit = start_visit(method.context, 1, 0, theta, torch.empty(0))
    x = normalise(method.context.data.train_images[:5], method.context.data)
    return Batch(x=x, y=method.context.data.train_labels[:5], **vars(visit))


def mean_delta(deltas: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What FedAvg makes of uploads [m, P] with weights [m] from a model of zeros, [P]."""
    totals = Totals()
    for k, (delta, p) in enumerate(zip(deltas, weights.tolist(), strict=True)):
        FedAvg().collect({}, totals, p, k, {"delta": delta})
    return FedAvg().aggregate({}, torch.zeros(deltas.shape[1]), totals)[0]


# -- 1: FedAvg by hand


@exercise("1.1")
def weighted_average(average: object) -> str:
    thetas, sizes = draws(3, 5), torch.tensor([10, 30, 60])
    expected = mean_delta(thetas, sizes)
    result = call(average, thetas, sizes)
    if same(result, thetas.mean(0)):
        raise Hint("this is the plain mean, in which a client with 10 samples counts as much as one with 60.")
    if same(result, sizes.float() @ thetas):
        raise Hint("the weights are in the right proportion, but they must sum to one.")
    if not same(result, expected):
        raise Hint("look at the weights: client k counts by its share of all samples, and the result has shape [P].")
    return "right, this is what weighting='size' does."


@exercise("1.2")
def number_of_steps(local_steps: object) -> str:
    for n, batch, epochs in ((60, 20, 4), (61, 20, 4), (7, 20, 3)):
        result = call(local_steps, n, batch, epochs)
        if result != epochs * len(list(split(torch.empty(1, n), batch))):
            if result == epochs * (n // batch):
                raise Hint(f"with {n} samples in batches of {batch} some are left over, and they make a batch too.")
            if result == -(-n * epochs // batch):
                raise Hint("an epoch ends before the next begins: no batch holds samples of two epochs.")
            raise Hint(f"count the batches of one epoch over {n} samples first, then the epochs.")
    return "right; clients with more samples take more steps, and so move further."


@exercise("1.3")
def traffic(bytes_up: object) -> str:
    for rounds, sampled, size in ((12, 4, 1000), (3, 10, 52650)):
        result = call(bytes_up, rounds, sampled, size)
        expected = rounds * sampled * bytes_of(torch.empty(size))
        if same(result, expected / 4):
            raise Hint("these are numbers sent; a number in float32 takes more than one byte.")
        if same(result, expected * SETTING.clients / sampled) and sampled != SETTING.clients:
            raise Hint("only the sampled clients send something.")
        if not same(result, expected):
            raise Hint("in every round each sampled client sends one number per parameter.")
    return "right; summary['bytes_up'] of a run of FedAvg says the same."


# -- 2: why label skew hurts


@exercise("2.1")
def divergence(weight_divergence: object) -> str:
    method = bound(FedAvg())
    thetas, weights = draws(3, method.net.size), torch.tensor([0.1, 0.3, 0.6])
    models = [
        LocalModel(k, float(p), w_k, torch.empty(0)) for k, (p, w_k) in enumerate(zip(weights, thetas, strict=True))
    ]
    with worker_pool(1) as pool:
        progress, scores = Progress(1, thetas[0], torch.empty(0), {}), Scores(0, 0, *torch.zeros(2, 10))
        seen = RoundSnapshot(method, progress, models, scores, pool, dataset_of(SETTING))
        expected = MEASURES["weight_divergence"](seen)["weight_divergence"]
    result = call(weight_divergence, thetas, weights)
    if same(result, (thetas - thetas.mean(0)).norm(dim=1).mean()):
        raise Hint("the center is the weighted average of the models, not the plain one.")
    if same(result, (weights * (thetas - weights @ thetas).norm(dim=1)).sum()):
        raise Hint("the center is right; the mean of the distances is a plain one.")
    if not same(result, expected):
        raise Hint("one center for all, one distance per client over all its parameters, and their mean: a number.")
    return "right, this is what measure=('weight_divergence',) records."


@exercise("2.2")
def update_survival(survival: object) -> str:
    updates = draws(5, 40)
    result, lengths = call(survival, updates), updates.norm(dim=1).mean()
    expected = mean_delta(updates, torch.ones(5)).norm()
    if same(result, lengths / expected):
        raise Hint("this is larger than one; turn it round.")
    if same(result, updates.sum(0).norm() / lengths):
        raise Hint("above is the length of the mean of the updates, not of their sum.")
    if not same(result, expected / lengths):
        raise Hint("above the length of the mean, a vector first; below the mean of the lengths, one per client.")
    return "right; five random updates keep about as much as five at right angles."


@exercise("2.3")
def class_forgetting(forgetting: object) -> str:
    before, after = torch.tensor([90.0, 80.0, 50.0, 0.0]), torch.tensor([0.0, 85.0, 50.0, 30.0])
    result = call(forgetting, before, after)
    if same(result, (before - after).mean()):
        raise Hint("here what was gained in some classes makes up for what was lost in others.")
    if same(result, (after - before).clamp(min=0).mean()):
        raise Hint("this is what was gained.")
    if same(result, (before - after).clamp(min=0).sum()):
        raise Hint("the sum is right; take the mean over all classes.")
    if not same(result, (before - after).clamp(min=0).mean()):
        raise Hint("all classes count in the mean; one that became better counts with zero.")
    return "right."


@exercise("2.4")
def mean_client_accuracy(client_accuracy: object) -> str:
    errors, counts = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([[90, 10, 0], [0, 5, 5], [1, 0, 1]])
    result, expected = call(client_accuracy, errors, counts), risk.client_accuracy(errors, counts)
    if same(result, 100 * (1 - errors.mean())):
        raise Hint("this is the accuracy on a test set with all classes in equal parts; clients have their own shares.")
    if same(result, 100 * (1 - float(counts.sum(0) / counts.sum() @ errors))):
        raise Hint("here a large client counts more; take the mean of the clients' accuracies.")
    if same(result, 100 - expected) or same(result, expected / 100):
        raise Hint("nearly: mind whether it is accuracy or error, and that it is in percent.")
    if not same(result, expected):
        raise Hint("turn each row of counts into shares that sum to one; shares times errors is that client's error.")
    return "right, this is client_accuracy of FedACD's Table 2."


# -- 3: three ways to fix the gradient


@exercise("3.1")
def proximal_gradient(prox_gradient: object) -> str:
    method = bound(build("fedprox", {"mu": 0.5}))
    w, w_t = (draws(method.net.size, seed=seed) for seed in (0, 1))
    batch = local_step_of(method, w_t)
    g, expected = FedAvg.gradient(method, w, batch, {}, {}), method.gradient(w, batch, {}, {})
    result = call(prox_gradient, g, w, w_t, 0.5)
    if same(result, 2 * g - expected):
        raise Hint("look at the sign: this pushes the client away from the model that it received.")
    if same(result, g + 0.25 * (w - w_t)):
        raise Hint("the half in the objective is gone once it is differentiated.")
    if same(result, expected - g):
        raise Hint("this is the pull alone; the client still has a loss of its own.")
    if not same(result, expected):
        raise Hint("differentiate the two terms of the objective, one after the other.")
    return "right, this is the gradient that FedProx takes in the library."


@exercise("3.2")
def control_variate(new_control: object) -> str:
    method = bound(build("scaffold"))
    w_t, w_k, c_k, c = (draws(method.net.size, seed=seed) for seed in range(4))
    visit = start_visit(method.context, 1, 0, w_t, torch.empty(0))
    visit.optimizer.steps = 7
    _, own = method.end(w_t, w_k, {"c": c}, {"c": c_k}, visit)
    result, mean = call(new_control, c_k, c, w_t, w_k, 7, SETTING.lr), own["c"] - c_k + c
    if same(result, mean):
        raise Hint("this is the mean of the corrected gradients; take the correction out of it.")
    if same(result, own["c"] - 2 * mean):
        raise Hint("look at the sign of the difference: a step goes against its gradient.")
    if same(result, c - c_k + mean):
        raise Hint("look at the signs of c and c_k: steps were taken along g - c_k + c.")
    if not same(result, own["c"]):
        raise Hint("w_t - w_k is lr times the sum of all corrected gradients; solve for the mean of the raw ones.")
    return "right, and the mean of all clients' vectors is what the server's c follows."


@exercise("3.3")
def projection(centralize: object) -> str:
    method = bound(build("local_gc"))
    assert isinstance(method, Centralized)
    vector = draws(method.net.size)
    G, expected = (method.net.split(v)["fc2.0.weight"] for v in (vector, method.center(vector.clone())))
    result = call(centralize, G)
    if same(result, G - G.mean(0)):
        raise Hint("these means go over the outputs; rows belong to outputs, and each row has a mean of its own.")
    if same(result, G - G.mean()):
        raise Hint("this subtracts one mean of the whole matrix; every output has its own.")
    if not same(result, expected):
        raise Hint("every row of the result must sum to zero, and nothing else may change.")
    return "right; what is left sums to zero over the inputs of every output."


@exercise("3.4")
def two_springs(after_one_round: object) -> str:
    for w_t, a, b, mu in ((4.0, 0.0, 2.0, 1.0), (-1.0, 3.0, 0.5, 0.25)):
        result = call(after_one_round, w_t, a, b, mu)
        ends = [w_t, w_t]
        for client, center in enumerate((a, b)):  # many steps, with the library's own pull
            w = torch.tensor(w_t)
            for _ in range(400):
                w = w - 0.1 * pull(w - center, w, torch.tensor(w_t), mu)
            ends[client] = float(w)
        if same(result, (a + b) / 2):
            raise Hint("this is where FedAvg stands, without the spring.")
        if not same(result, sum(ends) / 2, 1e-3):
            raise Hint("for each client, find where (w - its center) + mu (w - w_t) is zero; then take the mean.")
    return "right; for every mu the rounds end in the same place, and only their number differs."


# -- 4: fixing the objective


@exercise("4.1")
def flatness_term(flatness: object) -> str:
    for seed, y in ((0, 2), (1, 0)):
        logits = draws(6, seed=seed)
        p, expected = logits.softmax(0), flatness_loss(logits[None], torch.tensor([y]))
        result = call(flatness, p, y)
        q = torch.full_like(p, float(1 - p[y]) / 5)
        q[y] = p[y]
        if same(result, (q * (q / p).log()).sum()):
            raise Hint("the divergence has a direction: here it is weighted by p.")
        if same(result, -expected):
            raise Hint("look at the sign: a divergence is never negative.")
        if same(result, expected / 6):
            raise Hint("this is the mean over the classes; the divergence is a sum.")
        if not same(result, expected):
            raise Hint("q has the entry of p at y, and what is left to 1 in equal parts elsewhere.")
    return "right; an output that is flat over the wrong classes gives zero."


@exercise("4.2")
def shifts_of_rivals(shifts: object) -> str:
    P, counts = draws(4, 4).softmax(1).double(), torch.tensor([3, 0, 5, 2])
    result, expected = call(shifts, P, counts, 1e-3), shift_matrix(P, counts, 1e-3)
    held = counts > 0
    if np.shape(result) != (4, 4):
        raise Hint("the result is a matrix with a row per true class and a column per rival.")
    result = torch.as_tensor(result)
    if same(result, expected.T) or same(result[held][:, held], -expected[held][:, held]):
        raise Hint("row y and column i belong to log P_yi - log P_iy; yours are the other way round.")
    if same(result[held][:, held], expected[held][:, held]) and not same(result, expected):
        raise Hint(
            "right among the classes that the client has; the others stand in columns, with the logarithm of delta."
        )
    if not same(result, expected):
        raise Hint("take the logarithm of P first, and subtract the transpose; then the columns, then the diagonal.")
    return "right."


@exercise("4.3")
def mean_of_others(others: object) -> str:
    updates = draws(4, 6)
    result = call(others, updates.mean(0), 4, updates[1])
    if same(result, updates.mean(0) - updates[1]):
        raise Hint("the mean holds only a part of the own update; make a sum of it before you subtract.")
    if same(result, (4 * updates.mean(0) - updates[1]) / 4):
        raise Hint("the sum is right; how many clients are left in it?")
    if not same(result, without_own(updates.mean(0), torch.tensor(4), updates[1])):
        raise Hint("from the mean to the sum of all, from there to the sum of the others, from there to their mean.")
    return "right; the server sends one vector, and every client makes its own out of it."


# -- 5: sharing statistics instead of data


@exercise("5.1")
def gaussian_of_all(merge: object) -> str:
    z, sizes = draws(12, 3).double() + torch.arange(12)[:, None], [2, 4, 6]
    of_clients = [(part, torch.zeros(len(part), dtype=torch.int64)) for part in z.split(sizes)]
    n = torch.tensor(sizes, dtype=torch.float64)
    statistics = [class_gaussians([part], 1, 3, z.device) for part in of_clients]
    mu, sigma = (torch.cat([s[i] for s in statistics]) for i in (1, 2))
    _, mean, covariance = class_gaussians(of_clients, 1, 3, z.device)
    result = call(merge, n, mu, sigma)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Hint("the result is a pair: the mean and the covariance.")
    if same(result[0], mu.mean(0)):
        raise Hint("in the mean of all samples a client counts by its number of samples.")
    if not same(result[0], mean[0]):
        raise Hint("look at the mean first: it is that of all samples, so that clients count by their numbers.")
    if same(result[1], ((n - 1)[:, None, None] * sigma).sum(0) / (n.sum() - 1)):
        raise Hint("the mean is right; the covariance lacks the spread of the clients' means around it.")
    if same(result[1], covariance[0] * (n.sum() - 1) / n.sum()):
        raise Hint("nearly: an unbiased covariance is divided by one less than the number of samples.")
    if not same(result[1], covariance[0]):
        raise Hint("the mean is right; for the covariance undo each client's division, add, and divide once.")
    return "right: the server has the Gaussian of all features together and has seen none."


@exercise("5.2")
def statistics_size(extra_numbers: object) -> str:
    for cut in (1, 2):
        method = bound(build("fedimpro", {"cut": cut}))
        assert isinstance(method, FedImpro)
        result, shared = (
            call(extra_numbers, method.classes, method.size),
            method.server_init(torch.zeros(method.net.size)),
        )
        expected = sum(tensor.numel() for tensor in shared.values())
        if same(result, expected / 2):
            raise Hint("half of it: there are a mean and a spread.")
        if same(result, method.classes * (method.size + method.size**2)):
            raise Hint("FedImpro sends the spread of every entry by itself, no covariances.")
        if not same(result, expected):
            raise Hint("each class has two vectors as long as the feature.")
    return "right."


@exercise("5.3")
def single_images(exposed: object) -> str:
    counts = prepare(SETTING, dataset_of(SETTING))[0].context.counts
    result = call(exposed, counts)
    try:
        pairs = {(int(k), int(c)) for k, c in result}
    except (TypeError, ValueError):
        raise Hint("the result is a list of pairs (client, class).") from None
    expected = {(int(k), int(c)) for k, c in (counts == 1).nonzero()}
    if pairs == {(c, k) for k, c in expected}:
        raise Hint("client first, then class.")
    if pairs > expected:
        raise Hint(
            "some of these hold no image of the class, or several: a mean of none is not sent, one of many hides."
        )
    if pairs != expected:
        raise Hint("go through all clients and all classes, and ask when a mean is over one image only.")
    return "right; for these the first attack applies, not the second."


# -- 6: one round only


@exercise("6.1")
def loss_scores(scores: object) -> str:
    losses = 0.5 + draws(3, 4, 6).abs().double()
    result, expected = call(scores, losses), stratification.scores(losses)
    if same(result, expected.T):
        raise Hint("the numbers are right; the result has a row per class and a column per client.")
    if same(result, ((losses.amax(2) - losses.amin(2)) / losses.amax(2)).T):
        raise Hint("the fall is relative to the lowest loss, not to the highest.")
    if same(result, ((losses[:, :, 0] - losses[:, :, -1]) / losses.amin(2)).T):
        raise Hint(
            "the loss may rise on the way: it is the highest and the lowest that count, not the first and the last."
        )
    if not same(result, expected):
        raise Hint("take highest and lowest over the steps, the last axis; then the fall relative to the lowest.")
    return "right."


@exercise("6.2")
def stratified_logits(stratified: object) -> str:
    logits, y = draws(3, 5, 4), torch.tensor([0, 3, 1, 1, 2])
    U_r, U_c = stratification.normalised(draws(4, 3, seed=1).abs())
    result, expected = call(stratified, logits, y, U_r, U_c), aggregation.stratified(logits, y, U_r, U_c)
    if same(result, torch.einsum("kbj,jk,bk->bj", logits, U_r, U_c[y])):
        raise Hint("the two matrices are exchanged: the class that was asked for chooses the row of U_r.")
    if same(result, aggregation.self_consistent(logits, U_r, U_c)):
        raise Hint("this asks for every class in turn; here it is known which class each image was asked to be of.")
    if same(result, expected / 3):
        raise Hint("the weights are in U_r and U_c already: sum over the clients, no mean.")
    if not same(result, expected):
        raise Hint("give all three factors the axes client, image, class; multiply, and sum over the clients.")
    return "right, this is FedHydra's teacher."


@exercise("6.3")
def probabilities(mean_probability: object) -> str:
    logits = 3 * draws(3, 5, 4)
    result = call(mean_probability, logits)
    if same(result, logits.mean(0).softmax(1)):
        raise Hint("this averages the logits first; each client's softmax comes before the mean.")
    if same(result, logits.softmax(1).mean(0)) or same(result, logits.softmax(0).mean(0)):
        raise Hint("the softmax goes over the classes, the last axis.")
    if same(result, logits.mean(0)):
        raise Hint("these are logits still.")
    if not same(result, logits.softmax(2).mean(0)):
        raise Hint("a softmax per client and image, and then the mean over the clients.")
    return "right; its rows sum to one."
