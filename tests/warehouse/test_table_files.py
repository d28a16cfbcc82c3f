"""The list of a table's files: as a replay of its log gives it, and without a job of Spark if Delta has a list."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse.tables import Table, Tables
from sessionlake.warehouse.transactions import files_of

DELTA_LISTS = 50
"""Delta's checksum file lists the files of a table that has at most so many."""


def appended(spark: SparkSession, table: Table, files: int) -> None:
    """Append files of ten rows; each has its id and a time before the Gregorian calendar."""
    rows = spark.range(files * 10).selectExpr(
        "id", "timestamp '1001-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) at"
    )
    rows.repartition(files).write.format("delta").mode("append").save(table.uri)


def with_deleted(spark: SparkSession, table: Table) -> None:
    appended(spark, table, 3)
    name = table.sql_name()
    spark.sql(f"alter table {name} set tblproperties ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"delete from {name} where id in (3, 4)")
    appended(spark, table, 1)


def without_list(spark: SparkSession, table: Table) -> None:
    appended(spark, table, 3)
    (Path(table.uri) / "_delta_log" / f"{table.latest_version():020}.crc").unlink()
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


def jobs(spark: SparkSession, group: str, asked: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a function returns, and how many jobs of Spark it takes."""
    context = spark.sparkContext
    context.setJobGroup(group, group)
    try:
        return asked(), len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "is_listed"),
    [
        (with_deleted, True),
        (lambda spark, table: appended(spark, table, DELTA_LISTS), True),
        (lambda spark, table: appended(spark, table, DELTA_LISTS + 1), False),
        (without_list, False),
    ],
    ids=["deleted rows", "fifty", "more", "no list"],
)
def test_files_are_those_of_the_log(
    spark: SparkSession, tmp_path: Path, made: Callable[[SparkSession, Table], None], *, is_listed: bool
) -> None:
    table = Tables(spark, str(tmp_path), CHANGELOG)["t"]
    made(spark, table)
    snapshot = table._snapshot()
    found, many = jobs(spark, str(tmp_path), lambda: [file.json() for file in files_of(spark, snapshot).collect()])
    replayed = [file.json() for file in snapshot.allFiles().collect()]
    assert sorted(map(json.dumps, map(json.loads, found))) == sorted(map(json.dumps, map(json.loads, replayed)))
    assert (many == 0) is is_listed
    assert table.files().count() == len(replayed) >= 3
