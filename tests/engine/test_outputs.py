"""Files that shard tasks write: Spark and Delta read them as their own, and skip none that holds a wanted row."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sessionlake.engine import outputs
from sessionlake.engine.outputs import Output, write_output
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse.schemas import TIME
from sessionlake.warehouse.tables import Tables

SCHEMA = pa.schema(
    [
        ("at", TIME),
        ("text", pa.string()),
        ("nested", pa.struct([("a", pa.list_(pa.float64())), ("t", TIME)])),
        ("bytes", pa.binary()),
        ("batch_id", pa.int64()),
        ("commit_id", pa.string()),
    ]
)
MICROS = [-62_135_596_800_000_000, -1, 0, 1_700_000_000_000_001, 1_700_000_000_999_999, 253_402_300_799_999_999]


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    found = Tables(spark, str(tmp_path), CHANGELOG)
    found["t"].create(SCHEMA, "")
    return found


def output(tables: Tables) -> Output:
    return Output("kind", "t", tables["t"].uri, SCHEMA, lambda rows: rows)


def rows(micros: list[int | None]) -> pa.Table:
    n = len(micros)
    return pa.table(
        {
            "at": pa.array(micros, TIME),
            "text": ["ключ", None, *["x"] * n][:n],
            "nested": pa.array(
                [{"a": [0.5, None], "t": 1}, None, *[{"a": [], "t": None}] * n][:n], SCHEMA.field("nested").type
            ),
            "bytes": pa.array([b"\0\xff", None, *[b""] * n][:n], pa.binary()),
        }
    )


@pytest.mark.slow
def test_each_row_is_found_by_its_time_though_files_are_skipped_by_bounds(tables: Tables) -> None:
    marks = {"batch_id": 3, "commit_id": "c"}
    files = [write_output(output(tables), rows([micros]), marks, 0) for micros in MICROS]
    tables["t"].commit_files(files, "app", 0, {"batch_id": 0}, after_version=-1)
    for micros in MICROS:
        found = tables["t"].read().where(f"at = timestamp_micros({micros})")
        assert [r.us for r in found.selectExpr("unix_micros(at) us").collect()] == [micros]
    assert tables["t"].read().where("batch_id = 3 and commit_id = 'c'").count() == len(MICROS)


def test_values_come_back_as_they_went(tables: Tables) -> None:
    written = rows([5, None, 7])
    tables["t"].commit_files(
        [write_output(output(tables), written, {"batch_id": 1, "commit_id": "c"}, 2)],
        "a",
        0,
        {"batch_id": 0},
        after_version=-1,
    )
    read = tables["t"].read().toArrow().select(written.column_names).cast(written.schema)
    assert read.sort_by("at").to_pylist() == written.sort_by("at").to_pylist()
    assert tables["t"].read().count() == 3


def test_times_that_no_calendar_has_make_no_bounds(tables: Tables) -> None:
    file = write_output(output(tables), rows([np.iinfo(np.int64).max, 0]), {"batch_id": 1, "commit_id": "c"}, 0)
    assert file.stats == '{"numRecords": 2, "minValues": {"batch_id": 1}, "maxValues": {"batch_id": 1}}'


def test_a_file_says_which_keys_it_lacks_and_its_row_groups_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "ROWS_HELD", 100)
    schema = pa.schema([("k", pa.string()), ("batch_id", pa.int64()), ("commit_id", pa.string())])
    for name, key in (("with", "k"), ("without", None)):
        (tmp_path / name).mkdir()
        keys = sorted(f"user-{n}" for n in range(0, 500, 2))
        table = Output("kind", "t", str(tmp_path / name), schema, lambda rows: rows, key)
        file = write_output(table, pa.table({"k": keys}), {"batch_id": 1, "commit_id": "c"}, 0)
        path = tmp_path / name / file.path
        assert pq.ParquetFile(path).metadata.num_row_groups == 3
        with duckdb.connect() as db:
            probe = "select bool_and(bloom_filter_excludes) from parquet_bloom_probe(?, 'k', ?)"
            excluded = {n: db.execute(probe, [str(path), f"user-{n}"]).fetchall()[0][0] for n in range(100)}
        assert not any(excluded[n] for n in range(0, 100, 2)), "a key that is there is never excluded"
        assert (sum(excluded[n] for n in range(1, 100, 2)) > 40) == (key is not None)


def test_no_more_bytes_are_held_than_a_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "BYTES_HELD", 10_000)
    schema = pa.schema([("raw", pa.string()), ("batch_id", pa.int64()), ("commit_id", pa.string())])
    writer = outputs.OutputWriter(
        Output("kind", "t", str(tmp_path), schema, lambda rows: rows), {"batch_id": 1, "commit_id": "c"}, 0
    )
    for _ in range(10):
        writer.write(pa.table({"raw": ["x" * 6_000]}))
    written = pq.ParquetFile(tmp_path / writer.close().path).metadata
    assert (written.num_rows, written.num_row_groups) == (10, 5)
