"""Where the student starts, what is recorded of teacher and student, and FedHydra with the settings of its code."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, pad

from paperlib.data.batches import normalise, standardise
from paperlib.networks import build
from paperlib.oneshot.ensemble import Ensemble
from paperlib.oneshot.fedhydra import AUTHORS, FedHydra
from paperlib.random_streams import torch_rng

pytestmark = pytest.mark.filterwarnings("ignore:clients without BatchNorm")


# -- the student's start


@pytest.mark.parametrize("name", ["dense", "fedhydra"])
def test_the_student_is_a_network_of_its_own_and_then_goes_on(name, begin, ensemble):
    method, progress = begin(name)
    common = progress.theta.clone()
    method.start(ensemble, progress, 1)
    first = progress.theta.clone()
    assert not torch.equal(first, common)
    _, other = begin(name)
    other.theta = other.theta + 1  # wherever the clients start, the student does not
    method.start(ensemble, other, 1)
    assert torch.equal(other.theta, first)
    progress.theta = common + 2
    method.start(ensemble, progress, 2)
    assert torch.equal(progress.theta, common + 2)


def test_co_boostings_student_starts_where_the_clients_did(begin, ensemble):
    """Its two scripts set the same seed before they draw their first network, the clients' and the student's."""
    method, progress = begin("co_boosting")
    common = progress.theta.clone()
    method.start(ensemble, progress, 1)
    assert torch.equal(progress.theta, common)


def test_feddf_has_both_starts(begin, ensemble):
    same = Ensemble(ensemble.models[:2], [0.25, 0.75], 10)
    (fresh, progress), (dense, other) = begin("feddf", student_init="fresh"), begin("dense")
    fresh.start(same, progress, 1)
    dense.start(same, other, 1)
    assert torch.equal(progress.theta, other.theta)
    average, progress = begin("feddf")
    average.start(same, progress, 1)
    torch.testing.assert_close(progress.theta, 0.25 * same.models[0].theta + 0.75 * same.models[1].theta)


# -- Co-Boosting's images


def test_co_boosting_moves_images_between_minus_one_and_one_by_8_255_as_its_script_does(begin, ensemble):
    method, progress = begin("co_boosting")
    method.context.data = replace(method.context.data, mean=(0.5,), std=(0.5,))
    method.start(ensemble, progress, 1)
    pixels = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    moved, _ = method.lesson(
        ensemble, progress.server, standardise(pixels, method.context.data), {"labels": torch.arange(4)},
        torch.Generator().manual_seed(1),
    )  # fmt: skip
    images = (2 * pixels - 1).requires_grad_()
    random_w = torch.rand(4, 10, generator=torch.Generator().manual_seed(1)) * 2 - 1
    logits = sum(model(images) for model in ensemble.models) / 3
    (random_w * (logits / 4).softmax(1)).sum().backward()
    torch.testing.assert_close(moved, images.detach() + 8 / 255 * images.grad.sign())


def test_an_epoch_of_co_boostings_generator_is_the_plain_loop_at_the_weights_before_it(begin, ensemble, digits):
    """Only the generator's gradient is clipped, not that of the latent vectors; the new weights are for the student."""
    method, progress = begin("co_boosting", generator_steps=4, lr_g=0.02, clip=1e-3)
    method.start(ensemble, progress, 1)
    method.epoch(ensemble, progress, 1, 1)
    before = torch.tensor([0.5, 0.3, 0.1])
    progress.server["w"] = before
    (batch,), lowest = method.generate(ensemble, progress, 1, 2)
    torch.testing.assert_close((progress.server["w"] - before).abs(), torch.full((3,), 0.01 * 0.99))
    theta = method.G.initial(torch_rng(5, "generator", 1, 2)).requires_grad_()
    stream = torch_rng(5, "synthetic batch", 1, 2)
    z = torch.randn(16, 8, generator=stream).requires_grad_()
    y = torch.randint(10, (16,), generator=stream)
    adam = torch.optim.Adam([{"params": [theta]}, {"params": [z]}], 0.02, betas=(0.5, 0.999))
    best, losses = None, []
    for _ in range(4):
        images = method.G(theta, z, train=True)
        x = standardise(images, digits)
        P = sum(w * logits for w, logits in zip(before, ensemble.logits(x), strict=True)) / before.sum()
        S = method.net(progress.theta, x, buffers=progress.buffers)
        hard = 1 - P.detach().softmax(1)[torch.arange(16), y]
        kl = kl_div((S / 3).log_softmax(1), (P / 3).softmax(1), reduction="none").sum(1).mean()
        loss = (hard * cross_entropy(P, y, reduction="none")).mean() - 9 * kl
        losses.append(float(loss.detach()))
        if losses[-1] == min(losses):
            best = images.detach()
        adam.zero_grad()
        loss.backward()
        theta.grad *= min(1.0, 1e-3 / float(theta.grad.norm()))
        adam.step()
    assert lowest == pytest.approx(min(losses), rel=1e-4)
    assert (batch["images"].float() - 255 * best).abs().max() < 1


# -- what is recorded


@pytest.mark.parametrize("name", ["dense", "co_boosting", "fedhydra"])
def test_recorded_is_the_share_of_the_pool_that_the_teacher_takes_for_what_was_asked(name, begin, ensemble, digits):
    method, progress = begin(name, generator_steps=8, batch=32, lr_g=0.02)
    method.start(ensemble, progress, 1)
    for t in (1, 2):
        record = method.epoch(ensemble, progress, 1, t)
    hits = []
    for batch in progress.clients.values():
        logits, y = ensemble.logits(normalise(batch["images"], digits)), batch["labels"]
        hits += (method.aggregate(logits, y, progress.server).argmax(1) == y).tolist()
    assert len(hits) == 64
    assert record["teacher_as_asked"] == pytest.approx(100 * sum(hits) / 64)
    assert 0 < sum(hits) < 64  # else a constant would pass


def test_recorded_is_the_share_of_images_on_which_teacher_and_student_agree(begin, ensemble, digits):
    net = build("mlp", digits.shape, 10, width=0.05)  # without BatchNorm: the same in training and in evaluation
    method, progress = begin("dense", of=net, lr=1e-9, momentum=0.0, generator_steps=8, batch=32, lr_g=0.02)
    method.start(ensemble, progress, 1)
    progress.theta = ensemble.models[2].theta.clone()  # one of those that together are the teacher
    record = method.epoch(ensemble, progress, 1, 1)
    x = normalise(progress.clients[1]["images"], digits)
    teacher, student = ensemble.logits(x).mean(0).argmax(1), net(progress.theta, x).argmax(1)
    expected = 100 * float((teacher == student).double().mean())
    assert record["agreement"] == pytest.approx(expected)
    assert 0 < expected < 100


# -- FedHydra by U_r alone, and as in its authors' code


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("within", "factor"), [("uniform", 1 / 10), ("none", 1.0)])
def test_without_U_c_the_teacher_weighs_clients_by_the_class_asked_for(within, factor, begin, ensemble):
    printed, progress = begin("fedhydra")
    state = printed.stratification(ensemble, progress.theta, 1)
    method, _ = begin("fedhydra", within=within)
    found = method.stratification(ensemble, progress.theta, 1)
    assert torch.equal(found["U_r"], state["U_r"])
    logits, y = random(3, 4, 10), torch.tensor([3, 0, 9, 3])
    expected = torch.stack([
        factor * sum(float(state["U_r"][int(y[i]), k]) * logits[k, i] for k in range(3)) for i in range(4)
    ])  # fmt: skip
    torch.testing.assert_close(method.aggregate(logits, y, found), expected)
    assert (printed.aggregate(logits, y, state) - expected).abs().max() > 0.01


def test_FedHydra_teaches_and_reports_by_the_chosen_reading_of_U_c(begin, ensemble):
    logits, y = random(3, 4, 10), torch.tensor([3, 0, 9, 3])
    for within in ("U_c", "softmax", "log"):
        method, progress = begin("fedhydra", within=within)
        progress.server = method.stratification(ensemble, progress.theta, 1)
        U_r, U_c = progress.server["U_r"], progress.server["U_c"]
        P = {"U_c": logits, "softmax": logits.softmax(2), "log": logits.log_softmax(2)}[within]
        weighed = [P[k] + U_c[:, k].log() if within == "log" else P[k] * U_c[:, k] for k in range(3)]
        taught = sum(U_r[y, k, None] * weighed[k] for k in range(3))
        torch.testing.assert_close(method.aggregate(logits, y, progress.server), taught)
        alone = sum(U_r[:, k] * weighed[k] for k in range(3))
        assert method.ensembles(logits, y, progress) == {
            "ensemble_accuracy": pytest.approx(100 * float((logits.mean(0).argmax(1) == y).double().mean())),
            "stratified_accuracy": pytest.approx(100 * float((alone.argmax(1) == y).double().mean())),
            "stratified_accuracy_using_labels": pytest.approx(100 * float((taught.argmax(1) == y).double().mean())),
        }


def test_the_students_loss_with_the_mean_over_images_and_classes():
    teacher, student = random(6, 4), random(6, 4, seed=1)
    kl = kl_div(student.log_softmax(1), teacher.softmax(1), reduction="none").sum() / 24
    expected = kl + cross_entropy(student, teacher.argmax(1))
    torch.testing.assert_close(FedHydra(reduction="mean").student_loss(teacher, student), expected)


def test_masked_disagreement_leaves_out_images_of_the_same_class():
    teacher, student = random(20, 4), random(20, 4, seed=1)
    log_p, log_q = teacher.log_softmax(1), student.log_softmax(1)
    each = [
        float((log_p[i].exp() * (log_p[i] - log_q[i])).sum()) if int(teacher[i].argmax()) != int(student[i].argmax())
        else 0.0 for i in range(20)
    ]  # fmt: skip
    assert 0 < each.count(0.0) < 20
    assert float(FedHydra(masked=True).disagreement(teacher, student)) == pytest.approx(sum(each) / 20)


def test_the_stratification_with_crops_and_flips_is_the_plain_loop(begin, ensemble, digits):
    method, progress = begin("fedhydra", augment=True, common_draws=False, generator_steps=4)
    losses = method.stratification(ensemble, progress.theta, 1)["traces"][0, 0]
    plain, _ = begin("fedhydra", common_draws=False, generator_steps=4)
    assert (plain.stratification(ensemble, progress.theta, 1)["traces"][0, 0] - losses).abs().min() > 1e-6
    theta = method.G.initial(torch_rng(5, "stratification generator", 1, 1)).requires_grad_()
    z = torch.randn(16, 8, generator=torch_rng(5, "stratification latents", 1, 1))
    adam = torch.optim.Adam([theta], 1e-3, (0.5, 0.999))
    crops = torch_rng(5, "stratification crops", 1)
    for expected in losses.tolist():
        images = method.G(theta, z, train=True)
        rows, columns = torch.randint(9, (2, 16), generator=crops).tolist()
        flips = torch.randint(2, (16,), generator=crops).tolist()
        seen = [
            pad(image, (4, 4, 4, 4))[:, row : row + 28, column : column + 28].flip(2 if flip else 0)
            for image, row, column, flip in zip(images, rows, columns, flips, strict=True)
        ]
        logits = ensemble.models[0](standardise(torch.stack(seen), digits))
        loss = cross_entropy(logits, torch.zeros(16, dtype=torch.long))
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
        adam.zero_grad()
        loss.backward()
        adam.step()


def test_the_generator_learns_from_images_as_they_are(begin, ensemble):
    batches = []
    for augment in (False, True):
        method, progress = begin("fedhydra", teacher="ae", augment=augment, generator_steps=3)
        method.start(ensemble, progress, 1)
        batches += method.generate(ensemble, progress, 1, 1)[0]
    assert torch.equal(batches[0]["images"], batches[1]["images"])


def test_an_epoch_of_the_authors_generator_is_the_plain_loop(begin, ensemble, digits):
    """Reset, latent vectors that learn too, U_r alone, the mask, and the batch of the lowest loss."""
    method, progress = begin("fedhydra", generator_steps=6, lr_g=0.02, **AUTHORS)
    method.start(ensemble, progress, 1)
    U_r = progress.server["U_r"].float()
    for t in (1, 2):  # the second starts from another draw of its own, not from where the first ended
        (batch,), lowest = method.generate(ensemble, progress, 1, t)
        theta = method.G.initial(torch_rng(5, "generator", 1, t)).requires_grad_()
        stream = torch_rng(5, "synthetic batch", 1, t)
        z = torch.randn(16, 8, generator=stream).requires_grad_()
        y = torch.randint(10, (16,), generator=stream)
        adam = torch.optim.Adam([{"params": [theta]}, {"params": [z]}], 0.02, betas=(0.5, 0.999))
        best, losses = None, []
        for _ in range(6):
            images = method.G(theta, z, train=True)
            x = standardise(images, digits)
            logits, distance = ensemble.logits_and_distance(x)
            P = sum(U_r[y, k][:, None] * logits[k] for k in range(3))
            S = method.net(progress.theta, x, buffers=progress.buffers)
            mask = (S.argmax(1) != P.argmax(1)).float()
            adversarial = (kl_div(S.log_softmax(1), P.softmax(1), reduction="none").sum(1) * mask).mean()
            loss = cross_entropy(P, y) + distance - adversarial
            losses.append(float(loss.detach()))
            if losses[-1] == min(losses):
                best = images.detach()
            adam.zero_grad()
            loss.backward()
            adam.step()
        assert lowest == pytest.approx(min(losses), abs=1e-4)  # a difference of terms of 2, which may cancel
        assert torch.equal(batch["labels"], y)
        assert (batch["images"].float() - 255 * best).abs().max() < 1
