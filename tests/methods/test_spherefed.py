"""SphereFed: squared error on the unit sphere, the fixed classifier, the calibrated one."""

import pytest
import torch
from torch.nn.functional import normalize, one_hot

from paperlib.data.batches import normalise
from paperlib.federated.local import ClientTask, train_client

SKEWED = {"partition": "dirichlet", "alpha": 0.3}


def weight(method, theta):
    return method.net.split(theta)["classifier.weight"]


@pytest.mark.parametrize(("reduction", "factor"), [("sum", 1.0), ("mean", 0.25)])
def test_loss_is_the_squared_distance_to_the_label(start, batch_of, elsewhere, reduction, factor):
    method, progress = start("spherefed", {"reduction": reduction})
    theta, batch = elsewhere(progress), batch_of(method, progress)
    u = normalize(method.net.features(theta, batch.x), dim=1)
    expected = (u @ weight(method, theta).T - one_hot(batch.y, 4)).square().sum() / len(u)
    assert method.loss(theta, batch, {}, {}).item() == pytest.approx(factor * expected.item(), rel=1e-12)


def test_classifier_is_the_same_for_everybody_throughout(play, start):
    method, progress, _ = play("spherefed", weight_decay=0.1, **SKEWED)
    _, initial = start("spherefed", weight_decay=0.1, **SKEWED)
    assert torch.equal(weight(method, progress.theta), weight(method, initial.theta))
    trained = train_client(ClientTask(method.context, method, 4, 1, progress.theta, progress.buffers, {}, {}))
    assert not weight(method, trained.upload["delta"]).any() and trained.upload["delta"].norm() > 0.01


def test_calibration_serves_better_than_the_fixed_classifier(play):
    method, progress, _ = play("spherefed", rounds=4, sampled=4, **SKEWED)
    data, accuracies = progress.test, []
    for theta in (progress.theta, method.finish(progress.theta, progress.server)):
        logits = method.net(theta, normalise(data.test_images, data).double())
        accuracies.append(float((logits.argmax(1) == data.test_labels).double().mean()))
    assert accuracies[1] > 0.9 and accuracies[1] > accuracies[0]


def test_only_sampled_clients_calibrate_where_asked(play):
    skewed = {"partition": "two_classes", "clients": 2, "sampled": 1}
    method, progress, _ = play("spherefed", {"calibrate_on": "sampled"}, rounds=1, **skewed)
    w = weight(method, method.finish(progress.theta, progress.server))
    had = method.context.counts[method.chosen(progress.server)].sum(0) > 0
    assert torch.equal(w.abs().amax(1) > 0, had) and int(had.sum()) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reduction": "max"}, "reduction of SphereFed is 'max', but must be sum or mean"),
        ({"epsilon": 0.0}, "epsilon of SphereFed is 0.0, but must be above 0"),
        ({"base": "fedrod"}, "SphereFed cannot be combined with FedROD: it minimises squares and not"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(start, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("spherefed", options)
