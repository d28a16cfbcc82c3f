"""Tables of sessions after a crash or a repair by hand: late events, settings that changed meanwhile, the table of batches."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.observe.status import read_status
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches
from tests.engine.crash_support import FIRST, Lake, assert_reconciles, assert_same, crashes, half_done, run_once

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return half_done(spark, tmp_path_factory.mktemp("crash"))


def live(spark: SparkSession, lake: Lake) -> list[object]:
    return read_sessions(spark, lake.config).orderBy("session_key", "session_start").collect()


def test_late_events_deleted_by_hand_are_missed_by_status_and_by_no_session(
    spark: SparkSession, half: Lake, tmp_path: Path
) -> None:
    lake = half.copy(tmp_path / "lake")
    run_once(spark, lake)
    before = live(spark, lake)
    name, version = f"delta.`{lake.warehouse / schemas.LATE_EVENTS}`", len(lake.log(schemas.LATE_EVENTS)) - 1
    assert read_status(lake.config).reconciles
    spark.sql(f"delete from {name}")
    assert not read_status(lake.config).reconciles
    assert live(spark, lake) == before
    spark.sql(f"restore table {name} to version as of {version}")
    assert read_status(lake.config).reconciles


def test_settings_changed_between_late_rows_and_their_commit(
    spark: SparkSession, half: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = half.copy(tmp_path / "crashed")
    crashes(spark, crashed, monkeypatch, "after_late", 1)
    batch = len(crashed.commits())
    crashed.configure(grace="2 hours", retention="5 hours")
    run_once(spark, crashed)
    assert_reconciles(crashed)
    # The control's settings change once that batch is committed: the crash must not show.
    control = half.copy(tmp_path / "control")
    crashes(spark, control, monkeypatch, "after_changelog", batch - len(half.commits()) + 1)
    control.configure(grace="2 hours", retention="5 hours")
    run_once(spark, control)
    assert_same(crashed, control)


def test_batch_table_has_each_batch_once_after_crashes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    crashes(spark, lake, monkeypatch, "after_changelog", 2)
    tables = Tables.of(spark, lake.config)
    assert [r.batch_id for r in read_batches(tables).orderBy("batch_id").collect()] == [0, 1]
    run_once(spark, lake)
    run_once(spark, lake)
    assert [r.batch_id for r in tables[schemas.BATCHES].read().orderBy("batch_id").collect()] == [0, 1]
