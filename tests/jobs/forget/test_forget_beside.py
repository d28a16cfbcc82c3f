"""Rows of keys removed from a table beside what else commits to it: appends at any moment, and jobs that rewrite files."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.engine import failpoints
from sessionlake.errors import ContendedError
from sessionlake.jobs.forget.files import find_files
from sessionlake.jobs.forget.keys import Keys
from sessionlake.jobs.forget.lake import Lake
from sessionlake.warehouse.tables import Table, Tables
from tests.support import make_config

_FEATURES = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', 'delta.enableRowTracking' = 'true', 'delta.columnMapping.mode' = 'name'"


def made(spark: SparkSession, root: Path, partitions: tuple[str, ...]) -> Table:
    """Return a table with whatever a user may have switched on: 3 rows a key, one of which is deleted."""
    table = Tables.of(spark, make_config(root))["mine"]
    by = f"partitioned by ({', '.join(partitions)})" if partitions else ""
    columns = "key string, day string, n long"
    spark.sql(f"create table {table.sql_name()} ({columns}) using delta {by} tblproperties ({_FEATURES})")
    append(table, [(key, day, n) for n, (key, day) in enumerate([(k, d) for d in "xy" for k in ("gone", "kept")])])
    append(table, [("gone", "x", 10), ("kept", "x", 11)])
    append(table, [("gone", "x", 12), ("kept", "x", 13), ("other", "x", 14)])
    spark.sql(f"delete from {table.sql_name()} where n in (12, 13)")
    return table


def append(table: Table, rows: list[tuple[str, str, int]]) -> None:
    frame = table.spark.createDataFrame(rows, "key string, day string, n long")
    frame.coalesce(1).write.format("delta").mode("append").save(table.uri)


def rows_of(table: Table, *more: str) -> list[tuple[Any, ...]]:
    rows = table.read().selectExpr("key", "day", "n", *more).collect()
    return sorted(map(tuple, rows), key=lambda row: row[2])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("partitions", [(), ("day",)])
def test_appends_come_between_and_a_rewritten_file_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: tuple[str, ...]
) -> None:
    table = made(spark, tmp_path, partitions)
    lake = Lake(Tables.of(spark, make_config(tmp_path)), make_config(tmp_path), Keys.of(["gone"]))
    tracked = ("_metadata.row_id", "_metadata.row_commit_version")
    others = [row for row in rows_of(table, *tracked) if row[0] != "gone"]
    done: list[str] = []

    def hit(name: str) -> None:
        if name != "forget_files_written":
            return
        done.append(name)
        append(table, [("kept", "x", 100 + len(done)), *([("gone", "x", 99)] if len(done) == 1 else [])])
        if len(done) == 2:
            spark.sql(f"optimize {table.sql_name()}")

    monkeypatch.setattr(failpoints, "hit", hit)
    waited: list[bool] = []
    first = lake.files()["mine"]
    assert (sum(first.values()), len(first)) == (3, 2 + len(partitions))
    assert lake.delete("mine", first, lambda: bool(waited.append(True))) == 3
    assert (len(done), waited) == (1, [])
    before = table.latest_version()
    # The appended row of the key; the file that holds it is another's by the first commit, which is refused.
    second = lake.files()["mine"]
    with pytest.raises(ContendedError, match="1 attempts to change it each conflicted with another writer"):
        lake.delete("mine", second, lambda: bool(waited.append(True)))
    assert waited == [True]
    third = lake.files()["mine"]
    assert set(third).isdisjoint(second)
    assert lake.delete("mine", third, lambda: False) == 1
    assert (lake.files()["mine"], lake.counts_by_key()) == ({}, {"gone": 0})
    assert [row for row in rows_of(table, *tracked) if row[2] < 100] == others
    assert [row[2] for row in rows_of(table) if row[2] >= 100] == [101, 102, 103]
    # What a rewrite removed has no statistics in the log, which would keep a key for good.
    removes = [json.loads(line)["remove"] for line in (table.text(before) or "").split("\n") if '"remove"' in line]
    assert [("stats" in remove, remove["dataChange"]) for remove in removes] == [(False, True)] * len(first)
    assert table.commit_info(table.latest_version())["userMetadata"] is not None  # type: ignore[index]
    files = table.files().select(F.get_json_object("stats", "$.numRecords").alias("n"), "partitionValues").collect()
    assert all(row.n is not None and len(row.partitionValues) == len(partitions) for row in files)
    # The data files have names of their own for the columns.
    assert set(table.physical_names().values()).isdisjoint(table.physical_names())
    (found,) = find_files(lake, alone=False).values()
    assert {*first, *third} <= {entry.name for entry in found.removed}
    assert found.live == []
