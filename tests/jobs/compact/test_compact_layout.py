"""The snapshot's files: a warehouse with partitions, as earlier releases made them, and who comes between read and commit."""

import datetime as dt
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.jobs.compact import plan
from sessionlake.jobs.compact.fold import MERGE, REWRITE, fold
from sessionlake.jobs.compact.ordered import ROW_BYTES, in_order, row_bytes, snapshot_files
from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import FOLD
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ERASURES, changes, latest_changes
from tests.engine.crash_support import crash_at
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.compact.compact_support import DAY, append_batch, folded, history, sessions, upkeep_of

MB = plan.MB
FOLDED = 5


@pytest.fixture
def config(nine: Path, tmp_path: Path) -> Config:
    return copy_pipeline(nine, tmp_path)


@pytest.fixture
def tables(spark: SparkSession, config: Config) -> Tables:
    return Tables(spark, config.pipeline.warehouse, CHANGELOG)


@pytest.mark.slow
@pytest.mark.parametrize("method", [REWRITE, MERGE])
def test_an_erasure_after_the_tail_was_read_makes_the_fold_read_it_again(
    spark: SparkSession, config: Config, tables: Tables, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Of a key that the snapshot does not have yet, so that no file tells the two apart."""
    point = "compact_files_written" if method == REWRITE else "compact_tail_read"

    def erase() -> None:
        changelog = tables[schemas.CHANGELOG].sql_name()
        spark.sql(
            f"merge into {changelog} t using (select 'often' key) k on t.session_key = k.key when matched then delete"
        )
        tables[schemas.SESSIONS].set_app_versions({FOLD: lambda old: old, ERASURES: lambda count: count + 1})

    with crash_at(monkeypatch, point, action=erase):
        fold(upkeep_of(spark, config), 8, method, MB)
    found = sessions(tables[schemas.SESSIONS].read())
    assert "often" not in {row[0] for row in found}
    assert found == folded(history(tables))


@pytest.mark.slow
def test_files_of_a_fold_hold_whole_dates_or_ranges_of_keys(
    spark: SparkSession, config: Config, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows counted as a megabyte each, so that ten make a file and a date of forty four of them."""
    seen = []

    def megabyte(_: Tables, files: list[plan.File]) -> int:
        seen.append(len(files))
        return MB

    monkeypatch.setattr("sessionlake.jobs.compact.fold.row_bytes", megabyte)
    append_batch(tables, 9, *(("upsert", f"k{n:02}", 10 * DAY + n, 1) for n in range(40)))
    append_batch(tables, 10, *(("upsert", f"k{n:02}", (20 + n) * DAY, 1) for n in range(20)))
    upkeep = upkeep_of(spark, config)
    upkeep.spark.conf.set("spark.sql.adaptive.enabled", "true")  # as on tables of some size
    fold(upkeep, 10, REWRITE, 10 * MB)
    assert sessions(tables[schemas.SESSIONS].read()) == folded(history(tables))
    rows = (
        tables[schemas.SESSIONS]
        .read()
        .groupBy(F.col("_metadata.file_name"))
        .agg(
            F.min(SESSIONS.date).cast("string"),
            F.max(SESSIONS.date).cast("string"),
            F.min("session_key"),
            F.max("session_key"),
        )
    )
    bounds = sorted(tuple(row)[1:] for row in rows.collect())
    large = [b[2:] for b in bounds if b[0] == b[1] == "1970-01-11"]
    assert len(large) == 4
    assert all(a[1] < b[0] for a, b in pairwise(large))
    others = [b for b in bounds if b[0] != "1970-01-11"]
    assert all(a[1] < b[0] for a, b in pairwise(others))
    before = [(f.path, f.first, f.last) for f in snapshot_files(tables)]
    append_batch(tables, 11, ("upsert", "k00", 21 * DAY, 7))
    fold(upkeep_of(spark, config), 11, REWRITE, 10 * MB)
    kept = {path for path, first, last in before if not first <= "1970-01-22" <= last}
    files = {f.path for f in snapshot_files(tables)}
    assert kept < files
    # Only a new date: all files tell how large a row is, as none of them is written again.
    append_batch(tables, 12, ("upsert", "k00", 90 * DAY, 7))
    fold(upkeep_of(spark, config), 12, REWRITE, 10 * MB)
    assert files < {f.path for f in snapshot_files(tables)}
    assert seen == [0, 1, len(files)]
    assert sessions(tables[schemas.SESSIONS].read()) == folded(history(tables))


def test_a_date_out_of_plan_is_written_too(tables: Tables) -> None:
    rows = latest_changes(changes(tables[schemas.CHANGELOG].read(), -1), SESSIONS).where("op = 'upsert'")
    names = tables[schemas.SESSIONS].read().columns
    counts = {"1970-01-01": 1, "1970-01-05": 1}
    found = in_order(SESSIONS, rows.select(*names), rows, counts, 200 * MB, 128 * MB)
    assert sessions(found) == sessions(rows)


def test_rows_of_a_first_fold_are_as_large_as_changes(tables: Tables) -> None:
    """With a size that was taken for granted a first fold's files were so small that the same run wrote them again."""
    assert row_bytes(tables, snapshot_files(tables)) == ROW_BYTES, "small files tell nothing"
    append_batch(tables, 9, *(("upsert", f"{n * n}", n, n) for n in range(80_000)))
    (size,) = [s for file in Path(tables[schemas.CHANGELOG].uri).glob("*.parquet") if (s := file.stat().st_size) > MB]
    assert row_bytes(tables, snapshot_files(tables)) == size / 80_000


def test_files_of_a_date_have_equally_many_rows_by_ranges_of_keys(spark: SparkSession) -> None:
    """Ten rows are a file: dates of 1, 7 and 37 files, so that the search for a key's file has one to six steps."""
    counts = {"1970-01-01": 10, "1970-01-02": 65, "1970-01-03": 365}
    rows = spark.createDataFrame(
        [
            (f"key {n * 7919 % many:03}", day, dt.date.fromisoformat(day))
            for day, many in counts.items()
            for n in range(many)
        ],
        "session_key string, session_start string, session_date date",
    )
    found = in_order(SESSIONS, rows, rows, counts, MB, 10 * MB).withColumn("file", F.spark_partition_id()).collect()
    files = [[row for row in found if row.file == file] for file in range(45)]
    days = [{str(row.session_date) for row in file} for file in files]
    assert days == [{"1970-01-01"}] + [{"1970-01-02"}] * 7 + [{"1970-01-03"}] * 37
    sizes = [many * (n + 1) // of - many * n // of for many, of in ((10, 1), (65, 7), (365, 37)) for n in range(of)]
    assert [len(file) for file in files] == sizes, "each cut begins a file"
    told = [(str(row.session_date), row.session_key) for file in files for row in file]
    assert told == [(day, f"key {n:03}") for day, many in counts.items() for n in range(many)]
