"""Warehouses that earlier versions have written (tests/fixtures): they run on, are compacted, saved and put back."""

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.batches import last_batch
from sessionlake.config.load import Config
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.observe.status import read_status
from sessionlake.stream.run import run
from sessionlake.views import read_sessions
from sessionlake.warehouse.history import FORMAT
from sessionlake.warehouse.tables import Tables
from tests.support import make_config, write_rows

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("warehouse-*.tar.gz"))
SESSIONS = [("a", 100, 1, 0), ("a", 150, 1, 7), ("b", 101, 2, 2), ("c", 102, 1, 2), ("f", 105, 1, 5)]


def sessions(spark: SparkSession, config: Config) -> list[tuple[str, int, int, int]]:
    live = read_sessions(spark, config).select("session_key", F.unix_micros("session_start"), "event_count", "total")
    return sorted(tuple(row) for row in live.collect())


earlier = pytest.mark.parametrize("archive", FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))


def unpacked(root: Path, archive: Path) -> Config:
    with tarfile.open(archive) as files:
        files.extractall(root, filter="data")
    return make_config(root)


@earlier
def test_warehouse_of_an_earlier_version_runs_on(spark: SparkSession, tmp_path: Path, archive: Path) -> None:
    config = unpacked(tmp_path, archive)
    tables = Tables(spark, config.pipeline.warehouse)
    assert sessions(spark, config) == [*SESSIONS, ("g", 160, 1, 5)]
    rows = [{"key": "g", "time_us": 165, "v": 1}, {"key": "h", "time_us": 170, "v": 2}]
    write_rows(tmp_path, "new.json", rows)
    run(spark, config, once=True)
    assert sessions(spark, config) == [*SESSIONS, ("g", 160, 2, 6), ("h", 170, 1, 2)]
    assert last_batch(tables).metadata["format"] == FORMAT
    assert read_status(config).reconciles


@pytest.mark.slow
@earlier
def test_warehouse_of_an_earlier_version_is_compacted_saved_and_put_back(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    config = unpacked(tmp_path, archive)
    compact(spark, config, method="merge")
    backup(spark, config, str(tmp_path / "saved"))
    (tmp_path / "other").mkdir()
    other = make_config(tmp_path / "other")
    restore(spark, other, str(tmp_path / "saved"))
    write_rows(tmp_path / "other", "newer.json", [{"key": "g", "time_us": 165, "v": 1}])
    run(spark, other, once=True)
    assert sessions(spark, other) == [*SESSIONS, ("g", 160, 2, 6)]
    assert not Tables(spark, other.pipeline.warehouse).files(schemas.SESSIONS).isEmpty()
