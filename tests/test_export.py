"""The runs as data: everything is in the table, and everything in the table is explained."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from paperlib import Experiment, run
from paperlib.papers import shipped_runs
from paperlib.reports import export as exporting
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


def test_a_row_becomes_the_experiment_of_its_run_again(table):
    rows = table.drop_duplicates("digest")
    assert len(rows) == len(shipped_runs.summaries(shipped_runs.REFERENCE)) + 1
    for row in rows.itertuples():
        e = Experiment.from_json(row.experiment)
        assert e.digest == row.digest and (e.method, e.lr, e.seed) == (row.method, row.lr, row.seed)
        assert json.loads(row.method_options) == e.method_options


def test_every_column_is_explained_in_the_dictionary(folder, table):
    described = pd.read_csv(folder / "columns.csv")
    assert list(described.column) == list(table.columns) and described.meaning.notna().all()
    assert described.set_index("column").rows.to_dict() == table.notna().sum().to_dict()
    texts = set(described.column[described.type == "text"])
    assert texts == {name for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}


def test_a_text_takes_at_most_four_bytes_in_a_row_however_long_it_is(folder):
    """Repeated in every row of their runs, texts would be most of the table."""
    table = parquet.read_table(folder / "runs.parquet")
    texts = [column for column in table.columns if not pa.types.is_floating(column.type)]
    assert all(pa.types.is_dictionary(column.type) or pa.types.is_boolean(column.type) for column in texts)
    spelt = sum(len(str(text)) for text in table["experiment"].to_pylist())
    chunks = table["experiment"].chunks
    assert sum(chunk.indices.nbytes for chunk in chunks) <= 4 * len(table) < spelt / 10


def test_a_table_of_many_parts_has_the_rows_of_one_part(own, monkeypatch):
    whole = pa.concat_tables(exporting.parts(own.folder.parent))
    monkeypatch.setattr(exporting, "CHUNK", 100)
    parts = list(exporting.parts(own.folder.parent))
    assert len(parts) > 5 and len({tuple(part.schema) for part in parts}) == 1
    for name in ("digest", "experiment", "method", "test_accuracy", "weight_divergence"):
        assert pa.concat_tables(parts)[name].to_pylist() == whole[name].to_pylist()


def test_a_measure_may_have_the_name_of_a_column_of_the_table(own, tmp_path):
    folder = tmp_path / "runs" / OWN.digest
    folder.mkdir(parents=True)
    for file in own.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes().replace(b"weight_divergence", b"seed"))
    (folder / "summary.json").write_bytes((own.folder / "summary.json").read_bytes())
    (folder / "experiment.json").write_bytes((own.folder / "experiment.json").read_bytes())
    table = pd.read_parquet(export(tmp_path / "data", tmp_path / "runs") / "runs.parquet")
    mine = table[table.digest == OWN.digest]
    assert set(mine.seed) == {0} and mine["seed (measured)"].tolist() == own.history.weight_divergence.tolist()


def test_a_file_is_no_folder_to_export_to(tmp_path):
    (tmp_path / "here").write_text("")
    with pytest.raises(ValueError, match="here is no folder"):
        export(tmp_path / "here", tmp_path / "runs")
