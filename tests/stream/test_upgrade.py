"""Warehouses that earlier versions have written (tests/fixtures): they run on, are compacted, backfilled, saved and put back."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.reading import read_sessions
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.history import OLDEST_FORMAT
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import SECOND
from tests.fixtures.make import OPERATORS, lake_of
from tests.operator_lake import OperatorLake
from tests.operators_table import without_revisions
from tests.stream.old_warehouses import FIXTURES, unpack, unpacked
from tests.support import make_config, write_rows

ARCHIVES = sorted(FIXTURES.glob("*-*.*.tar.gz"))
"""As operator-version.tar.gz, made by `tests/fixtures/make.py`; of `jobs` those with traces of jobs. Kept for good."""
LAST = "9fd1ec33"
"""The last commit before an operator's columns were declared once."""
OLD = FIXTURES / "warehouse-586e742.tar.gz"
"""Of version 0.1, which this one does not read."""
SESSIONS = [("a", 100, 1, 0), ("a", 150, 1, 7), ("b", 101, 2, 2), ("c", 102, 1, 2), ("f", 105, 1, 5)]


def sessions(spark: SparkSession, config: Config) -> list[tuple[str, int, int, int]]:
    live = read_sessions(spark, config).select("session_key", F.unix_micros("session_start"), "event_count", "total")
    return sorted(tuple(row) for row in live.collect())


def archives(*, jobs: bool) -> pytest.MarkDecorator:
    """Run a test once for each archive."""
    chosen = [path for path in ARCHIVES if path.name.startswith("jobs-") == jobs]
    return pytest.mark.parametrize("archive", chosen, ids=lambda path: path.name.removesuffix(".tar.gz"))


def restored_for(archive: Path) -> set[str]:
    """Return why stores are restored: those of 0.2 were RocksDB's, which is another format; those of LAST are read."""
    return set() if LAST in archive.name else {"layout"}


def test_every_operator_has_an_archive() -> None:
    versions = {version: {*OPERATORS, "jobs"} for version in ("0.2.tar.gz", f"0.2.{LAST}.tar.gz")}
    found = {
        v: {path.name.partition("-")[0] for path in ARCHIVES if path.name.partition("-")[2] == v} for v in versions
    }
    assert found == versions


@pytest.mark.slow
@archives(jobs=False)
def test_an_operator_continues_the_warehouse_of_an_earlier_version(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    """Its rows are those of the oracle, with stores that are restored: theirs are of an earlier format, and later there are none."""
    unpack(tmp_path, archive)
    lake = lake_of(archive.name.partition("-")[0], tmp_path)
    committed: list[BatchCommit] = []
    lake.write_files(SECOND[:1])
    run(spark, lake.config, once=True, on_commit=committed.append)
    assert set(committed[0].places.causes) == restored_for(archive)
    shutil.rmtree(lake.stores)
    lake.write_files(SECOND[1:])
    run(spark, lake.config, once=True, on_commit=committed.append)
    assert any(batch.places.restored for batch in committed[1:])
    OperatorLake.check(lake)  # of what its own corrections do, these few are none
    assert without_revisions(lake, lake.sent()) == without_revisions(lake, lake.answer())
    assert read_status(lake.config).reconciles
    tables = Tables.of(spark, lake.config)
    outcomes = {row["correction_id"]: row["outcome"] for row in lake.rows(schemas.CORRECTION_OUTCOMES)}
    assert (outcomes["c0"], outcomes["c1"]) == ("applied", "malformed")

    def live() -> list[str]:
        return sorted(str(row) for row in merged_rows(tables).collect())

    before = live()
    compact(spark, lake.config)
    assert live() == before


@pytest.mark.parametrize("job", [True, False])
def test_a_warehouse_of_0_1_is_refused_with_the_remedy(spark: SparkSession, tmp_path: Path, job: bool) -> None:  # noqa: FBT001
    config = unpacked(tmp_path, OLD)
    write_rows(tmp_path, "new.json", [{"key": "g", "time_us": 165, "v": 1}])
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "warehouse").rglob("*")}
    remedy = r"^[^\n]*is of format \d[^\n]*`sessionlake rebuild CONFIG --warehouse NEW`$"
    asked = [partial(compact, spark, config)] if job else [partial(run, spark, config, once=True)]
    for ask in [*asked, partial(read_status, config), partial(read_sessions, spark, config)]:
        with pytest.raises(PipelineStateError, match=remedy):
            ask()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "warehouse").rglob("*")} == there


@pytest.mark.parametrize("job", [True, False])
def test_a_checkpoint_of_0_1_without_batches_is_refused_before_a_table_is_made(
    spark: SparkSession,
    tmp_path: Path,
    job: bool,  # noqa: FBT001
) -> None:
    config = make_config(tmp_path)
    metadata = Path(config.checkpoint) / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('{"id": "5c1a7a0e-93b4-4d0e-a0b5-3f3f2f1f8d10"}')  # as 0.1 wrote it
    write_rows(tmp_path, "0.json", [{"key": "g", "time_us": 165, "v": 1}])
    there = sorted((tmp_path / "warehouse").rglob("*"))
    with pytest.raises(PipelineStateError, match=r"^checkpoint: '.*': is of format 0"):
        compact(spark, config) if job else run(spark, config, once=True)
    assert sorted((tmp_path / "warehouse").rglob("*")) == there


@archives(jobs=True)
def test_warehouse_of_an_earlier_version_runs_on(spark: SparkSession, tmp_path: Path, archive: Path) -> None:
    config = unpacked(tmp_path, archive)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    assert sessions(spark, config) == [*SESSIONS, ("g", 160, 1, 5)]
    rows = [{"key": "g", "time_us": 165, "v": 1}, {"key": "h", "time_us": 170, "v": 2}]
    write_rows(tmp_path, "new.json", rows)
    committed: list[BatchCommit] = []
    run(spark, config, once=True, on_commit=committed.append)
    assert sessions(spark, config) == [*SESSIONS, ("g", 160, 2, 6), ("h", 170, 1, 2)]
    newest = tables[schemas.CHANGELOG].last_commit()
    assert newest is not None
    assert newest.metadata["format"] == OLDEST_FORMAT
    assert read_status(config).reconciles
    assert set(committed[0].places.causes) == restored_for(archive)


@pytest.mark.slow
@archives(jobs=True)
def test_warehouse_of_an_earlier_version_ends_equal_to_one_made_anew(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    config = unpacked(tmp_path, archive)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    late = tables[schemas.LATE_EVENTS].read().count()
    report = backfill(spark, config, from_us=0, to_us=86_400_000_000 - 1, dry_run=True)
    # Nothing differs but by the late events that wait: one of c, and one of a key of its own.
    found = {name: report.counts[name] for name in ("sessions", "unchanged", "corrections", "late_included")}
    assert (
        found
        == {"sessions": 6, "unchanged": 5, "corrections": 2, "late_included": late}
        == {**found, "late_included": 2}
    )
    other = tmp_path / "anew"
    other.mkdir()
    (other / "events").symlink_to(tmp_path / "events")
    anew = make_config(other)
    run(spark, anew, once=True)
    write_rows(tmp_path, "4.json", [{"key": "g", "time_us": 165, "v": 1}])
    run(spark, config, once=True)
    compact(spark, config)
    run(spark, anew, once=True)
    # d was expired and e forgotten by jobs.
    events = [json.loads(line) for line in (tmp_path / "events" / "0.json").read_text().splitlines()]
    removed = {row["key"] for row in events if row["key"] in "de"}
    assert sessions(spark, config) == [row for row in sessions(spark, anew) if row[0] not in removed]
    assert Tables(spark, anew.pipeline.warehouse, CHANGELOG)[schemas.LATE_EVENTS].read().count() == late


@pytest.mark.slow
@archives(jobs=True)
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
    assert last_batch(Tables(spark, other.pipeline.warehouse, CHANGELOG)).batch_id > 0
    assert not Tables(spark, other.pipeline.warehouse, CHANGELOG)[schemas.SESSIONS].files().isEmpty()
