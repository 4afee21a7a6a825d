"""The runs as data: everything is in the table, and everything in the table is explained."""

import json

import mlcroissant
import numpy as np
import pandas as pd
import pytest
import yaml

from paperlib import Experiment, run
from paperlib.experiment import HINTS
from paperlib.papers import shipped_runs
from paperlib.reports.export import export

OWN = Experiment(
    dataset="digits", model="mlp", width=0.25, clients=5, sampled=2, rounds=3, batch_size=50, method="gc_fed",
    method_options={"border": 0.9}, measure=("weight_divergence",),
)  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return run(OWN, store=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def folder(own, tmp_path_factory):
    return export(tmp_path_factory.mktemp("export") / "data", own.folder.parent)


@pytest.fixture(scope="module")
def table(folder):
    return pd.read_parquet(folder / "runs.parquet")


def test_every_run_is_there_with_the_rows_of_its_history(own, table):
    shipped = shipped_runs.summaries(shipped_runs.REFERENCE)
    assert set(table.digest) == {*shipped, OWN.digest} and not table.duplicated(["digest", "round", "epoch"]).any()
    mine = table[table.digest == OWN.digest]
    assert mine.test_accuracy.tolist() == own.history.test_accuracy.tolist() and set(mine.origin) == {"own"}
    assert mine.weight_divergence.tolist() == own.history.weight_divergence.tolist()
    for failed in (False, True):  # a run that failed has no accuracy in its last round
        digest, (name, entry) = next(run for run in shipped.items() if run[1][1]["summary"]["failed"] == failed)
        theirs = table[table.digest == digest]
        np.testing.assert_array_equal(theirs.test_accuracy, shipped_runs.history(digest, name).test_accuracy)
        last = entry["summary"]["last10_accuracy"]
        assert theirs.last10_accuracy.iloc[0] == last or (last is None and theirs.last10_accuracy.isna().all())


def test_a_row_says_enough_to_play_its_run_again(table):
    row = table[table.digest == OWN.digest].iloc[0]
    fields = {name: row[name] for name in HINTS if pd.notna(row[name])}
    for name in ("method_options", "measure", "client_models", "augment"):
        fields[name] = json.loads(fields[name])
    fields |= {name: int(v) for name, v in fields.items() if isinstance(v, float) and v.is_integer()}
    assert Experiment.from_json(json.dumps(fields)) == OWN


def test_every_column_is_explained_in_dictionary_card_and_metadata(folder, table):
    described = pd.read_csv(folder / "columns.csv")
    assert list(described.column) == list(table.columns) and described.meaning.notna().all()
    assert described.set_index("column").rows.to_dict() == table.notna().sum().to_dict()
    card = (folder / "README.md").read_text()
    assert all(f"| `{name}` |" in card for name in table) and "mean nothing" not in card
    front = yaml.safe_load(card.split("---")[1])
    assert front["license"] == "mit" and f"{len(table):,} evaluated rounds" in card


def test_the_metadata_is_valid_and_reads_the_table(folder, table):
    dataset = mlcroissant.Dataset(folder / "croissant.json")
    assert not dataset.metadata.issues.errors and not dataset.metadata.issues.warnings
    first = next(iter(dataset.records("rounds")))
    assert first["rounds/digest"] == table.digest[0].encode() and first["rounds/round"] == table["round"][0]


def test_a_file_is_no_folder_to_export_to(tmp_path):
    (tmp_path / "here").write_text("")
    with pytest.raises(ValueError, match="here is no folder"):
        export(tmp_path / "here", tmp_path / "runs")
