"""A keyed table that dies at any point loses no update and no deletion, and writes no change twice."""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import (
    CONFIG,
    FIRST,
    SECOND,
    Lake,
    assert_same,
    assert_stands_sigkill,
    assert_stands_sigkill_in_a_restore,
    assert_stands_sigkill_of_a_worker,
    crashes,
    run_once,
)

TABLE = """\
[table]
retention = "40 minutes"
delete_when = "tag = 'e'"
"""
POINTS = (
    "computed",
    "before_dead",
    "after_dead",
    "before_outcomes",
    "after_outcomes",
    "before_changelog",
    "after_changelog",
)


class TableLake(Lake):
    """A table of the latest event of each key; events with a certain tag delete theirs."""

    template: ClassVar[str] = CONFIG[: CONFIG.index("[session]")] + TABLE
    changelog: ClassVar[str] = "table_changelog"
    tables: ClassVar[tuple[str, ...]] = ("table_changelog", schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES)

    def correct(self, spark: SparkSession) -> None:
        """Ask for rows to be deleted: some that are there, one that has changed meanwhile, and what is no correction."""
        last = {row["table_key"]: row for row in sorted(self.rows("table_changelog"), key=lambda r: r["batch_id"])}
        there = sorted((row for row in last.values() if row["op"] == "upsert"), key=lambda row: row["table_key"])
        rows = [("tombstone", row["table_key"], row["revision"]) for row in there[:4]]
        rows += [("tombstone", row["table_key"], row["revision"] + 7) for row in there[4:5]]
        rows += [("no such kind", there[5]["table_key"], 0)]
        named = [
            {
                "correction_id": f"c{i}",
                "kind": kind,
                "session_key": key,
                "revision": revision,
                "job": "test",
                "created_at": 0,
            }
            for i, (kind, key, revision) in enumerate(rows)
        ]
        table = pa.Table.from_pylist(named, schema=schemas.CORRECTIONS_SCHEMA)
        Tables(spark, str(self.warehouse))[schemas.CORRECTIONS].append_rows(table)


def half_done(spark: SparkSession, root: Path) -> TableLake:
    """Return a table that has taken half of its input; the other half, corrections and all, waits."""
    lake = TableLake(root / "lake", root / "events")
    lake.write_files(FIRST)
    run_once(spark, lake)
    lake.correct(spark)
    lake.write_files(SECOND)
    return lake


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TableLake:
    return half_done(spark, tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def expected(spark: SparkSession, half: TableLake, tmp_path_factory: pytest.TempPathFactory) -> TableLake:
    lake = half.copy(tmp_path_factory.mktemp("expected") / "lake")
    run_once(spark, lake)
    totals: dict[str, Any] = {}
    for commit in lake.commits():
        for name, value in commit["counts"].items():
            totals[name] = totals.get(name, 0) + value
    assert totals["accepted"] == totals["changed"] + totals["superseded"] + totals["unchanged"]
    assert min(totals[name] for name in ("deletes", "superseded", "dead", "applied", "stale", "malformed")) > 0
    reasons = {row["reason"] for row in lake.rows(schemas.DEAD_LETTERS)}
    assert "beyond retention" in reasons, "no deletion was forgotten"
    return lake


def test_crashes_at_every_point_with_stores_lost_and_shards_cut_anew(
    spark: SparkSession, half: TableLake, expected: TableLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = half.copy(tmp_path / "lake")
    for point in POINTS:
        crashes(spark, lake, monkeypatch, point)
        if point == "before_outcomes":
            shutil.rmtree(lake.stores)
    lake.configure(shards=2)
    crashes(spark, lake, monkeypatch, "before_changelog")
    run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
@pytest.mark.parametrize("point", [*POINTS, "after_changelog:2"])
def test_sigkill_of_the_driver(
    spark: SparkSession, half: TableLake, expected: TableLake, tmp_path: Path, point: str
) -> None:
    assert_stands_sigkill(spark, half.copy(tmp_path / "lake"), expected, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["worker_computed", "worker_applied"])
def test_sigkill_of_a_worker(half: TableLake, expected: TableLake, tmp_path: Path, point: str) -> None:
    assert_stands_sigkill_of_a_worker(half.copy(tmp_path / "lake"), expected, point)


@pytest.mark.slow
def test_sigkill_between_the_parts_of_a_restore(half: TableLake, expected: TableLake, tmp_path: Path) -> None:
    assert_stands_sigkill_in_a_restore(half.copy(tmp_path / "lake"), expected)
