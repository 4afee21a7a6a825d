"""What a round of a one-shot method does, and what it leaves alone."""

from collections.abc import Callable

import pytest
import torch

from paperlib.data.batches import normalise, standardise
from paperlib.federated.client_states import ClientStates
from paperlib.federated.progress import Progress
from paperlib.oneshot import REGISTRY
from paperlib.oneshot.aggregation import accuracy, averaged, logits_of_test_set, stratified
from paperlib.oneshot.ensemble import Ensemble, Model

DISTILLING = ["feddf", "dense", "co_boosting", "fedhydra"]
pytestmark = pytest.mark.filterwarnings("ignore:clients without BatchNorm")


def copy(progress: Progress, folder=None) -> Progress:
    """The state as a checkpoint keeps it."""
    clients = ClientStates(folder)
    for t in progress.clients:
        clients[t] = {name: tensor.clone() for name, tensor in progress.clients[t].items()}
    if folder is not None:
        clients.save(7)
        clients = ClientStates(folder, files=clients.files)
    server = {name: tensor.clone() for name, tensor in progress.server.items()}
    return Progress(progress.round, progress.theta.clone(), progress.buffers.clone(), server, clients)


def assert_same(one: Progress, other: Progress) -> None:
    assert torch.equal(one.theta, other.theta)
    assert torch.equal(one.buffers, other.buffers)
    assert one.server.keys() == other.server.keys()
    assert all(torch.equal(one.server[name], other.server[name]) for name in one.server)
    assert list(one.clients) == list(other.clients)
    for t in one.clients:
        assert all(torch.equal(value, other.clients[t][name]) for name, value in one.clients[t].items())


@pytest.mark.parametrize("name", DISTILLING)
def test_clients_of_two_architectures_stay_as_they_are_and_the_student_learns(name, play, begin, ensemble):
    before = [(model.theta.clone(), model.buffers.clone()) for model in ensemble.models]
    method, progress = play(name)
    for model, (theta, buffers) in zip(ensemble.models, before, strict=True):
        assert torch.equal(model.theta, theta)
        assert torch.equal(model.buffers, buffers)
    start = begin(name)[1]
    assert not torch.equal(progress.theta, start.theta)
    assert not torch.equal(progress.buffers, start.buffers)
    assert progress.finite


@pytest.mark.parametrize("name", DISTILLING)
def test_training_the_generator_leaves_the_student_and_its_statistics_as_they_are(name, begin, ensemble):
    method, progress = begin(name)
    method.start(ensemble, progress, 1)
    before = copy(progress)
    method.generate(ensemble, progress, 1, 1)
    assert torch.equal(progress.theta, before.theta)
    assert torch.equal(progress.buffers, before.buffers)


@pytest.mark.parametrize("name", DISTILLING)
def test_distilling_leaves_the_generator_as_it_is(name, begin, ensemble):
    method, progress = begin(name, reset_generator=False)
    method.start(ensemble, progress, 1)
    batches, _ = method.generate(ensemble, progress, 1, 1)
    before = copy(progress)
    method.distil(ensemble, progress, batches, 1, 1)
    assert torch.equal(progress.server["generator"], before.server["generator"])
    assert not torch.equal(progress.theta, before.theta)


def test_a_clients_logits_of_an_image_do_not_depend_on_the_others(ensemble, digits):
    x = normalise(digits.test_images[:8], digits)
    torch.testing.assert_close(ensemble.logits(x)[:, :2], ensemble.logits(x[:2]))


@pytest.mark.parametrize("name", DISTILLING)
def test_a_run_interrupted_after_an_epoch_ends_with_the_same_bits(name, begin, ensemble, tmp_path):
    method, whole = begin(name, distill_epochs=3)
    method.start(ensemble, whole, 1)
    records = [method.epoch(ensemble, whole, 1, t) for t in (1, 2)]
    resumed = copy(whole, tmp_path)
    records.append(method.epoch(ensemble, whole, 1, 3))
    again, _ = begin(name, distill_epochs=3)
    assert again.epoch(ensemble, resumed, 1, 3) == records[-1]
    assert_same(whole, resumed)


STEPS = {"pool": 1 + 2 + 3, "intermediates": 3 * 4, "literal": 3}


@pytest.mark.parametrize("train_on", STEPS)
def test_steps_of_the_student_and_of_the_generator_are_counted(train_on, begin, ensemble, monkeypatch):
    method, progress = begin("fedhydra", distill_epochs=3, generator_steps=4, train_on=train_on)
    counts = {"student_loss": 0, "label_loss": 0}

    def counted(name: str) -> None:
        original = getattr(method, name)

        def call(*arguments):
            counts[name] += 1
            return original(*arguments)

        monkeypatch.setattr(method, name, call)

    for name in counts:
        counted(name)
    method.start(ensemble, progress, 1)
    for t in (1, 2, 3):
        method.epoch(ensemble, progress, 1, t)
    assert counts == {"student_loss": STEPS[train_on], "label_loss": 3 * 4}
    # 200 epochs of 30 steps at this rate: 20,100, 6,000 or 200 steps of the student, 6,000 of the generator
    assert len(progress.clients) == (3 if train_on == "pool" else 1)
    assert 3 in progress.clients
    assert progress.server["traces"].shape == (3, 10, 4)


def test_the_pool_grows_by_one_batch_of_bytes_per_epoch_with_what_the_teacher_says_of_them(play, ensemble, digits):
    method, progress = play("fedhydra")
    assert list(progress.clients) == [1, 2]
    newest = progress.clients[2]
    assert newest["images"].dtype == torch.uint8
    assert newest["images"].shape == (16, *digits.shape)
    logits = ensemble.logits(normalise(newest["images"], digits))
    U_r, U_c = (progress.server[name].float() for name in ("U_r", "U_c"))
    torch.testing.assert_close(newest["teacher"], stratified(logits, newest["labels"], U_r, U_c))


def test_a_later_round_starts_from_the_model_before_it_with_an_empty_pool(play, ensemble):
    method, progress = play("fedhydra")
    theta, generator = progress.theta, progress.server["generator"]
    method.start(ensemble, progress, 2)
    assert torch.equal(progress.theta, theta)
    assert not progress.clients
    assert not torch.equal(progress.server["generator"], generator)
    assert not progress.server["momentum"].any()


def test_of_an_epochs_batches_the_one_with_the_lowest_loss_is_kept(begin, ensemble):
    method, progress = begin("dense", generator_steps=3, lambda_1=0.0)
    method.start(ensemble, progress, 1)
    losses, seen = [], []
    original = method.generator_loss

    def rising(ensemble, progress, x, y):
        loss = original(ensemble, progress, x, y) + abs(len(losses) - 1)  # of three the second is the lowest
        losses.append(float(loss.detach()))
        seen.append(x.detach())
        return loss

    method.generator_loss = rising
    (batch,), kept = method.generate(ensemble, progress, 1, 1)
    assert kept == losses[1] == min(losses)
    x = normalise(batch["images"], method.context.data)
    assert [bool((x - other).abs().max() * method.context.data.std[0] < 0.51 / 255) for other in seen] == [0, 1, 0]


def test_a_generator_without_weight_on_distance_and_disagreement_has_the_cross_entropy_alone(begin, ensemble, digits):
    method, progress = begin("dense", lambda_1=0.0, lambda_2=0.0)
    x, y = normalise(digits.test_images[:8], digits), digits.test_labels[:8]
    expected = torch.nn.functional.cross_entropy(averaged(ensemble.logits(x)), y)
    torch.testing.assert_close(method.generator_loss(ensemble, progress, x, y), expected)


def test_the_generators_loss_is_the_sum_of_its_parts(begin, ensemble, digits):
    method, progress = begin("fedhydra", lambda_1=0.5, lambda_2=2.0, teacher="ae")
    x, y = normalise(digits.test_images[:8], digits), digits.test_labels[:8]
    logits, distance = ensemble.logits_and_distance(x)
    P, S = averaged(logits), method.net(progress.theta, x, buffers=progress.buffers)
    expected = torch.nn.functional.cross_entropy(P, y) + 0.5 * distance - 2 * method.disagreement(P, S)
    torch.testing.assert_close(method.generator_loss(ensemble, progress, x, y), expected)


def test_clients_without_batch_norm_are_named_where_it_counts(begin, ensemble):
    method, progress = begin("dense")
    with pytest.warns(UserWarning, match="lambda_1: 2$"):
        method.start(ensemble, progress, 1)


def test_feddf_starts_at_the_average_by_shares_if_all_have_the_students_architecture(begin, ensemble):
    same = Ensemble(ensemble.models[:2], [0.25, 0.75], 10)
    method, progress = begin("feddf")
    method.start(same, progress, 1)
    first, second = same.models
    torch.testing.assert_close(progress.theta, 0.25 * first.theta + 0.75 * second.theta)
    torch.testing.assert_close(progress.buffers, 0.25 * first.buffers + 0.75 * second.buffers)
    method, progress = begin("feddf")
    random = progress.theta.clone()
    method.start(ensemble, progress, 1)
    assert torch.equal(progress.theta, random)


def test_a_student_that_is_the_only_client_has_nothing_to_learn(begin, net, ensemble):
    """In evaluation mode; in training mode BatchNorm tells the student from the client."""
    alone = Ensemble(ensemble.models[2:], [1.0], 10)  # without BatchNorm
    method, progress = begin("feddf", of=alone.models[0].net)
    method.start(alone, progress, 1)
    assert torch.equal(progress.theta, alone.models[0].theta)
    record = method.epoch(alone, progress, 1, 1)
    assert record["student_loss"] < 1e-6
    torch.testing.assert_close(progress.theta, alone.models[0].theta, atol=1e-4, rtol=0)


def test_what_the_student_sees_in_co_boosting_is_moved_by_epsilon_where_the_teachers_mixture_rises(begin, ensemble):
    method, progress = begin("co_boosting")
    method.start(ensemble, progress, 1)
    x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    x = standardise(x, method.context.data)
    moved, P = method.lesson(
        ensemble, progress.server, x.clone(), {"labels": torch.arange(4)}, torch.Generator().manual_seed(1)
    )
    step = (moved - x).abs() * method.context.data.std[0]
    assert step.max() == pytest.approx(4 / 255, rel=1e-4)
    assert (step > 3.95 / 255).float().mean() > 0.5
    torch.testing.assert_close(P, averaged(ensemble.logits(moved)))
    r = torch.rand(P.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    mixtures = [(r * (averaged(ensemble.logits(images)) / 4).softmax(1)).sum(1) for images in (x, moved)]
    assert (mixtures[1] > mixtures[0]).all()


def test_co_boostings_weights_follow_the_pool_from_the_second_epoch_on(begin, ensemble):
    method, progress = begin("co_boosting", distill_epochs=2)
    method.start(ensemble, progress, 1)
    method.epoch(ensemble, progress, 1, 1)
    torch.testing.assert_close(progress.server["w"], torch.full((3,), 1 / 3))
    method.epoch(ensemble, progress, 1, 2)
    step = (progress.server["w"] - 1 / 3).abs()
    torch.testing.assert_close(step, torch.full((3,), 0.01 * 0.99))


@pytest.mark.parametrize("name", DISTILLING)
def test_augmented_images_are_seen_by_teacher_and_student_alike(name, begin, ensemble, monkeypatch):
    method, progress = begin(name, augment=True, **({"epsilon": 0.0} if name == "co_boosting" else {}))
    method.start(ensemble, progress, 1)
    batches, _ = method.generate(ensemble, progress, 1, 1)
    lessons = []
    original = method.lesson
    monkeypatch.setattr(
        method, "lesson", lambda *arguments: lessons.append((arguments, original(*arguments))) or lessons[-1][1]
    )
    method.distil(ensemble, progress, batches, 1, 1)
    (_, server, x, samples, _), (seen, P) = lessons[0]
    torch.testing.assert_close(P, method.aggregate(ensemble.logits(seen), samples["labels"], server))
    rows = {tuple(image.flatten().tolist()) for image in normalise(batches[0]["images"], method.context.data)}
    assert not {tuple(image.flatten().tolist()) for image in seen} <= rows


def test_stratification_does_not_depend_on_the_other_clients(begin, ensemble):
    """Common random numbers: who else takes part changes a client's share and not its score."""
    method, progress = begin("fedhydra")
    found = method.stratification(ensemble, progress.theta, 1)["U"]
    alone = method.stratification(Ensemble(ensemble.models[1:2], [1.0], 10), progress.theta, 1)["U"]
    assert torch.equal(found[:, 1:2], alone)


def test_two_equal_clients_score_alike_with_common_draws_only(begin, ensemble):
    twins = Ensemble([ensemble.models[2]] * 2, [0.5, 0.5], 10)
    for common in (True, False):
        method, progress = begin("fedhydra", common_draws=common)
        U = method.stratification(twins, progress.theta, 1)["U"]
        assert torch.equal(U[:, 0], U[:, 1]) == common


def test_a_generator_that_diverges_ends_the_run_as_failed(begin, ensemble):
    method, progress = begin("dense")
    method.start(ensemble, progress, 1)
    method.generator_loss = lambda ensemble, progress, x, y: x.sum() * torch.nan
    method.epoch(ensemble, progress, 1, 1)
    assert not progress.finite


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_on": "all"}, "train_on of DENSE is 'all', but must be pool or intermediates or literal"),
        ({"train_on": "literal"}, "keep of DENSE is 'lowest', which is for train_on 'pool' and not 'literal'"),
        ({"generator_steps": 0}, "generator_steps of DENSE is 0, but must be at least 1"),
        ({"lambda_1": -1.0}, "lambda_1 of DENSE is -1.0, but must be at least 0"),
        ({"lr": 0.0}, "lr of DENSE is 0.0, but must be above 0"),
        ({"student_init": "zero"}, "student_init of DENSE is 'zero', but must be fresh or common or average"),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError) as refusal:
        REGISTRY["dense"](**options)
    assert str(refusal.value) == message


def test_fedhydra_refuses_an_unknown_teacher():
    with pytest.raises(ValueError, match="teacher of FedHydra is 'mean', but must be sa or ae"):
        REGISTRY["fedhydra"](teacher="mean")


@pytest.mark.parametrize("name", DISTILLING)
def test_a_distilled_student_beats_chance(name, play: Callable, ensemble, digits):
    """Clients of two architectures that are far better than chance together teach a student without any data."""
    together = accuracy(averaged(logits_of_test_set(ensemble, digits)), digits.test_labels)
    assert together > 60
    method, progress = play(name, batch=64, distill_epochs=20, generator_steps=5, lr_g=0.01, lr=0.05)
    student = Model(method.net, progress.theta, progress.buffers)
    found = accuracy(averaged(logits_of_test_set(Ensemble([student], [1.0], 10), digits)), digits.test_labels)
    assert found > 20, (found, together)
