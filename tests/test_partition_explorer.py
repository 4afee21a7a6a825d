"""The partition explorer: what it says and draws is the partition that its line of code makes."""

import math

import numpy as np
import pytest
import torch

from paperlib import Experiment
from paperlib.data.datasets import DATASETS, load, training_labels
from paperlib.data.partitions import NoDrawError, partition
from paperlib.display import plots
from paperlib.display.markup import Markup
from paperlib.runs.prepare import dataset_of, parts_of
from paperlib.teaching import widgets
from paperlib.teaching.widgets import partitions


def controls(explorer):
    return {control.description: control for row in explorer.children[:-1] for control in row.children}


def copied(explorer) -> Experiment:
    """The experiment of the line that the button copies."""
    return eval(explorer.view.code, {"Experiment": Experiment})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("iid", {"clients": 7}),
        ("dirichlet", {"clients": 12, "alpha": 0.37, "seed": 5}),
        ("dirichlet_capped", {"clients": 20, "alpha": 0.5}),
        ("classes_per_client", {"clients": 15, "classes_per_client": 3}),
        ("two_classes", {"clients": 5}),
        ("quantity", {"clients": 8, "alpha": 0.4}),
    ],
)
def test_the_copied_line_makes_exactly_the_partition_that_is_shown(name, settings, monkeypatch):
    seen = []
    contents = partitions.contents
    monkeypatch.setattr(partitions, "contents", lambda parts: seen.append(parts) or contents(parts))
    e = copied(widgets.partition_explorer("digits", name, **settings))
    made = parts_of(e, dataset_of(e))
    assert len(made) == settings["clients"] and all(map(torch.equal, made, seen[0]))


def test_the_words_state_sizes_and_entropies_of_the_partition():
    explorer = widgets.partition_explorer("digits", "dirichlet", alpha=0.1, clients=10)
    counts = partition(load("digits").train_labels, "dirichlet", clients=10, alpha=0.1).counts().numpy()
    sizes, p = counts.sum(1), counts / counts.sum(1, keepdims=True)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(1).mean()
    few = int(((counts > 0).sum(1) < 2).sum())
    text = explorer._repr_mimebundle_()["text/plain"]
    assert f"10 clients, {sizes.min()} to {sizes.max()} samples (median {np.median(sizes):.0f})" in text
    assert f"label entropy {entropy:.2f} nats on average, of at most ln 10 = {math.log(10):.2f}" in text
    assert f"{few} client{'' if few == 1 else 's'} hold" in text
    assert explorer._repr_mimebundle_()["image/png"].startswith("iVBOR")


def test_a_move_changes_words_picture_and_line():
    explorer = widgets.partition_explorer("digits", clients=10, alpha=0.5)
    words, image, there = explorer.view.words, explorer.screen.picture, controls(explorer)
    there["alpha"].value = 50.0
    assert explorer.view.words != words and explorer.screen.picture != image and copied(explorer).alpha == 50.0
    image = explorer.screen.picture
    there["samples as"].value = "bubbles"
    assert explorer.screen.picture != image
    there["seed"].value = 3
    assert copied(explorer).partition_seed == 3


def test_alpha_and_classes_per_client_are_shown_where_they_apply():
    there = controls(widgets.partition_explorer("digits", clients=20))

    def shown():
        return {name for name in ("alpha", "classes per client") if there[name].layout.display != "none"}

    assert shown() == {"alpha"}
    there["partition"].value = "classes_per_client"
    assert shown() == {"classes per client"}
    there["partition"].value = "iid"
    assert shown() == set()


def test_impossible_values_show_the_sentence_of_the_partition_and_keep_the_view():
    explorer = widgets.partition_explorer("digits", clients=20, alpha=1.0)
    there, words = controls(explorer), explorer.view.words
    there["partition"].value = "two_classes"
    assert "needs 5 clients, not 20" in explorer.screen.error and explorer.screen.words == explorer.view.words == words
    there["clients"].value = 5
    assert "5 clients, " in explorer.screen.words and explorer.screen.error == ""
    there["partition"].value = "natural"
    assert "needs a data set with writers" in explorer.screen.error
    there["partition"].value = "dirichlet"
    there["clients"].value = 200
    there["alpha"].value = 0.01
    error = explorer.screen.error
    assert "none of 500 Dirichlet(0.01) draws" in error and "up to 20,000 times" in error
    with pytest.raises(ValueError, match="data set 'nowhere' is not at hand; choose one of digits"):
        widgets.partition_explorer("nowhere")


def test_the_draws_of_a_partition_are_limited_as_asked():
    labels = torch.arange(100) % 10
    with pytest.raises(NoDrawError, match="none of 3 Dirichlet"):
        partition(labels, "dirichlet", clients=90, alpha=0.01, draws=3)


def test_labels_are_those_of_the_set_and_of_a_pack_no_image_is_needed(tmp_path, monkeypatch):
    assert torch.equal(training_labels("digits")[0], load("digits").train_labels)
    stream = np.random.default_rng(0)
    labels = stream.permutation(np.arange(120) % 4)
    images = np.zeros((120, 8, 8), np.uint8)
    arrays = {"train_labels": labels, "test_labels": labels, "train_images": images, "test_images": images}
    writers = np.arange(120) % 12
    np.savez(tmp_path / "own.npz", classes=np.array(list("abcd")), train_writers=writers, **arrays)
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    data = load("own")
    known, by = training_labels("own")
    assert torch.equal(known, data.train_labels) and torch.equal(by, data.writers)

    explorer = widgets.partition_explorer("own", "natural", clients=6)
    made = parts_of(copied(explorer), data)
    assert "6 clients, 10 to 10 samples" in explorer.view.words and [len(part) for part in made] == [10] * 6

    del arrays["train_images"]  # not a set, but its labels are there
    np.savez(tmp_path / "bare.npz", classes=np.array(list("abcd")), **arrays)
    assert training_labels("bare")[0].tolist() == labels.tolist() and training_labels("bare")[1] is None


def test_cells_of_the_heatmap_are_the_counts_around_client_and_class():
    counts = torch.tensor([[3, 0, 1], [0, 5, 2]])
    ax = plots.partition(counts, "heatmap")
    (mesh,) = ax.collections
    assert mesh.get_array().reshape(3, 2).tolist() == counts.T.tolist()
    assert mesh.get_coordinates()[0, :, 0].tolist() == [-0.5, 0.5, 1.5]
    assert mesh.get_coordinates()[:, 0, 1].tolist() == [-0.5, 0.5, 1.5, 2.5]


def test_sets_that_are_not_at_hand_are_listed_with_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    more = widgets.partition_explorer("digits").view.more
    for name, known in DATASETS.items():
        assert (Markup("<li><code>{}</code>: {}</li>").format(name, known.obtain) in more) == (name != "digits")
    assert "the folder that PAPERLIB_DATA names" in more


def test_like_clients_share_a_column_where_there_are_too_many_to_tell_them_apart():
    counts = torch.tensor([[1, 3], [5, 1], [0, 4], [9, 1], [7, 7]])  # the tie goes to the first class
    assert partitions.columns(counts, 5).tolist() == [[9, 1], [5, 1], [7, 7], [0, 4], [1, 3]]
    assert partitions.columns(counts, 2).tolist() == [[7, 3], [0.5, 3.5]]

    explorer = widgets.partition_explorer("digits", "iid", clients=1000)
    samples, sizes, entropies = explorer.view.figure.axes[:3]
    labels = load("digits").train_labels
    known = partition(labels, "iid", clients=1000).counts()
    (mesh,) = samples.collections
    shown = mesh.get_array().reshape(10, 200)
    np.testing.assert_allclose(shown.sum() * 5, len(labels))
    assert (shown.argmax(0)[:-1] <= shown.argmax(0)[1:]).mean() > 0.9  # class after class
    assert samples.xaxis.get_major_formatter()(100, None) == "500"
    (outline,) = entropies.patches
    heights = outline.get_data().values
    assert len(heights) == 1000 and (np.diff(heights) <= 0).all()
    p = known / known.sum(1, keepdim=True)
    assert heights.max() == pytest.approx(float(torch.special.entr(p.double()).sum(1).max()))
