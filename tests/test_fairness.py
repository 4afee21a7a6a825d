"""Accuracy by class and by client of a run: what its history records, and what a reader gets from it."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import Experiment, fairness_of, run
from paperlib.data.batches import normalise
from paperlib.files import write_record
from paperlib.oneshot import is_one_shot
from paperlib.reports.results_page import runs
from paperlib.reports.run_table import finished, listing
from paperlib.runs.prepare import dataset_of, parts_of, prepare, prepare_one_shot
from paperlib.runs.records import read_history, read_summary
from paperlib.runs.store import Store

E = Experiment(
    dataset="digits", train_size=300, test_size=200, model="mlp", width=0.25, alpha=0.2, clients=12, sampled=4,
    rounds=4, local_epochs=1, batch_size=20, lr=0.05, eval_every=2,
)  # fmt: skip
ONE_SHOT = E.replace(
    method="dense", clients=3, sampled=3, rounds=1, eval_every=1, model="cnn2", pixels="unit",
    method_options={"distill_epochs": 2, "generator_steps": 1, "batch": 8, "latent": 8, "generator_width": 0.06},
)  # fmt: skip
NEW_IN_SUMMARY = ("last10_worst_decile", "last10_client_spread")
NEW = ("class_hits", "worst_decile", "client_spread")


def without_classes(folder):
    """Make a finished run one of a version that recorded no classes."""
    rows = [{name: value for name, value in row.items() if name not in NEW} for row in read_history(folder)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "history.jsonl").write_bytes(content)
    summary = {name: value for name, value in read_summary(folder).items() if name not in NEW_IN_SUMMARY}
    summary["files"]["history.jsonl"] = hashlib.sha256(content).hexdigest()
    write_record(folder / "summary.json", summary)


@pytest.mark.parametrize("e", [E, E.replace(method="fedrod"), ONE_SHOT], ids=["fedavg", "fedrod", "dense"])
def test_a_run_records_the_predictions_of_its_model_counted_by_class_and_client(e, tmp_path):
    result = run(e, store=tmp_path)
    data, row = dataset_of(e), result.history.iloc[-1]
    method = (prepare_one_shot if is_one_shot(e) else prepare)(e, data)[0]
    with torch.no_grad():
        x = normalise(data.test_images, data)
        predicted = method.net(result.parameters, x, buffers=result.buffers).argmax(1).tolist()
    labels = data.test_labels.tolist()
    hits, images = [0] * 10, [0] * 10
    for guess, label in zip(predicted, labels, strict=True):
        images[label] += 1
        hits[label] += guess == label
    assert row.class_hits == hits and 100 * sum(hits) / len(labels) == row.test_accuracy
    by_client = []
    for part in parts_of(e, data):
        held = [int((data.train_labels[part] == c).sum()) for c in range(10)]
        by_client.append(100 * sum(n * h / m for n, h, m in zip(held, hits, images, strict=True)) / sum(held))
    lowest = sorted(by_client)[: -(-e.clients // 10)]
    assert row.worst_decile == pytest.approx(sum(lowest) / len(lowest), abs=1e-10)
    assert row.client_spread == pytest.approx(np.std(by_client), abs=1e-10) and row.client_spread > 1
    fair = fairness_of(result)
    assert fair.by_class[-1].tolist() == pytest.approx([100 * h / m for h, m in zip(hits, images, strict=True)])
    assert fair.by_client[-1].tolist() == pytest.approx(by_client, abs=1e-10)
    assert fair.worst_decile.tolist() == pytest.approx(result.history.worst_decile.tolist(), abs=1e-10)
    assert fair.spread.tolist() == pytest.approx(result.history.client_spread.tolist(), abs=1e-10)


def test_every_evaluation_is_recorded_and_other_rounds_are_not(tmp_path):
    result = run(E, store=tmp_path)
    recorded = [set(NEW) <= set(row) for row in read_history(result.folder)]
    assert recorded == [False, True, False, True] and len(result.history) == 2
    for name, column in (("last10_worst_decile", "worst_decile"), ("last10_client_spread", "client_spread")):
        assert result.summary[name] == pytest.approx(result.history[column].mean(), abs=1e-12)


def test_a_run_without_classes_is_read_as_before_and_says_so_when_asked(tmp_path):
    recent, older = run(E, store=tmp_path), run(E.replace(seed=1), store=tmp_path)
    without_classes(older.folder)
    older = Store(tmp_path).finished(older.experiment)
    assert list(older.history) == ["round", "test_accuracy", "test_loss", "seconds", "bytes_up", "bytes_down"]
    with pytest.raises(ValueError, match="has no hits of 10 classes: run it with resume=False"):
        fairness_of(older)
    listed = [one for one in finished(tmp_path) if one.folder is not None]
    table, page = listing(listed), {record["digest"]: record for record in runs(listed)}
    for result in (recent, older):
        known, digest = "last10_worst_decile" in result.summary, result.experiment.digest
        assert known == (result is recent) == (not pd.isna(table.loc[digest, "spread"]))
        expected = round(result.summary["last10_worst_decile"], 2) if known else None
        assert page[digest]["worst decile"] == expected


def test_a_run_that_goes_on_from_an_older_versions_rounds_ends_with_what_is_known(tmp_path, monkeypatch):
    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr("paperlib.federated.simulator.fairness_entries", lambda *_: {})
        run(E, store=tmp_path, on_round=stop)
    result, whole = run(E, store=tmp_path), run(E, store=tmp_path / "whole")
    assert result.history.class_hits.tolist() == [None, whole.history.class_hits.iloc[-1]]
    assert result.summary["last10_worst_decile"] == whole.history.worst_decile.iloc[-1]
    assert fairness_of(result).by_client.shape == (1, E.clients)


def test_a_tracker_gets_numbers_alone(tmp_path):
    rows = []
    run(E, store=tmp_path, on_round=rows.append)
    assert all(isinstance(value, int | float) for row in rows for value in row.values())
    assert rows[-1]["worst_decile"] > 0 and "class_hits" not in rows[-1]


@pytest.mark.parametrize("value", [3, None, "1", [1.5], [-1], [True], [[1]], [None], {"0": 1}, [2**63]])
def test_damaged_hits_are_refused(value, tmp_path):
    result = run(E, store=tmp_path)
    lines = (result.folder / "history.jsonl").read_text().splitlines(keepends=True)
    row = json.loads(lines[-1]) | {"class_hits": value}
    (result.folder / "history.jsonl").write_text("".join([*lines[:-1], json.dumps(row) + "\n"]))
    assert len(read_history(result.folder)) == len(lines) - 1
    with pytest.warns(UserWarning, match="the run starts again"):
        assert Store(tmp_path).finished(E) is None


def test_hits_of_other_classes_are_refused_in_a_sentence(tmp_path):
    result = run(E, store=tmp_path)
    result.history["class_hits"] = [[1, 2], [1, 2]]
    with pytest.raises(ValueError, match="has no hits of 10 classes"):
        fairness_of(result)
