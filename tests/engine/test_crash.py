"""A driver that dies at any point loses nothing and counts nothing twice: its tables equal an undisturbed run's."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.observe.status import read_status
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches
from tests.engine.crash_support import (
    DRIVER_POINTS,
    FIRST,
    Lake,
    assert_killed,
    assert_reconciles,
    assert_same,
    crash_at,
    crashes,
    half_done,
    killed_run,
    run_once,
)

# What the JVM sees of a killed worker hangs on what it had written to it and on which end it looks at first.
WORKER_GONE = "Python worker exited unexpectedly|Connection reset|Broken pipe"


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return half_done(spark, tmp_path_factory.mktemp("crash"))


@pytest.fixture(scope="module")
def expected(spark: SparkSession, half: Lake) -> Lake:
    lake = half.copy(half.root.with_name("expected"))
    run_once(spark, lake)
    return lake


def live(spark: SparkSession, lake: Lake) -> list[object]:
    return read_sessions(spark, lake.config).orderBy("session_key", "session_start").collect()


def test_input_has_every_kind_of_row(spark: SparkSession, expected: Lake) -> None:
    totals: dict[str, int] = {}
    for commit in expected.commits():
        for name, value in commit["counts"].items():
            totals[name] = totals.get(name, 0) + value
    kinds = ("accepted", "late", "dead", "applied", "stale", "upserts", "deletes")
    assert {name for name in kinds if not totals.get(name)} == set()
    assert_reconciles(expected)
    horizon = expected.commits()[len(FIRST) - 1]["state"]["watermark_us"] - 50 * 60_000_000
    deleted = [r for r in expected.rows(schemas.CHANGELOG) if (r["op"], r["batch_id"]) == ("delete", len(FIRST))]
    assert any(r["session_end"].timestamp() * 1e6 < horizon for r in deleted), "no cold session was removed"
    batches = read_batches(Tables(spark, str(expected.warehouse))).orderBy("batch_id").collect()
    assert [b.commit_id for b in batches] == [c["commit_id"] for c in expected.commits()]


@pytest.mark.timeout(600)
def test_sigkill_chain(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    assert_killed(killed_run(lake, "after_changelog"))
    done = killed_run(lake, "worker_applied", tmp_path / "once")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "once").exists(), "no worker was killed"
    assert_same(lake, expected)
    assert live(spark, lake) == live(spark, expected)


@pytest.mark.slow
def test_sigkill_before_and_after_outcomes(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    for point in ("before_outcomes", "after_outcomes"):
        assert_killed(killed_run(lake, point))
    run_once(spark, lake)
    assert_same(lake, expected)
    assert len(lake.rows(schemas.CORRECTION_OUTCOMES)) == len(lake.rows(schemas.CORRECTIONS)) > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_sigkill_at_every_point(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path, point: str) -> None:
    lake = half.copy(tmp_path / "lake")
    assert_killed(killed_run(lake, point))
    run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
def test_driver_fails_at_every_point_of_one_batch(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = half.copy(tmp_path / "lake")
    for point in DRIVER_POINTS:
        crashes(spark, lake, monkeypatch, point)
    run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
def test_worker_killed_in_mid_batch(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = half.copy(tmp_path / "lake")
    for point in ("worker_computed", "worker_applied"):
        # A file for each point: a worker of the other task may still be on its way to the first one's.
        once = tmp_path / point
        once.touch()
        with monkeypatch.context() as patch:
            patch.setitem(spark.sparkContext.environment, "SESSIONLAKE_KILL_AT", point)
            patch.setitem(spark.sparkContext.environment, "SESSIONLAKE_KILL_ONCE", str(once))
            # The tests' local[2] tries a task once only.
            with pytest.raises(Exception, match=WORKER_GONE):
                run_once(spark, lake)
        assert not once.exists()
    run_once(spark, lake)
    assert_same(lake, expected)


def test_executor_lost_between_its_work_and_the_commit(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output lies in the warehouse already; its stores, pending files too, are restored with the next batch."""
    lake = half.copy(tmp_path / "lake")
    with crash_at(monkeypatch, "before_changelog", 1, lambda: shutil.rmtree(lake.stores)):
        run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
def test_late_events_deleted_by_hand_are_missed_by_status_and_by_no_session(
    spark: SparkSession, expected: Lake, tmp_path: Path
) -> None:
    lake = expected.copy(tmp_path / "lake")
    name, version = f"delta.`{lake.warehouse / schemas.LATE_EVENTS}`", len(lake.log(schemas.LATE_EVENTS)) - 1
    assert read_status(lake.config).reconciles
    spark.sql(f"delete from {name}")
    assert not read_status(lake.config).reconciles
    assert live(spark, lake) == live(spark, expected)
    spark.sql(f"restore table {name} to version as of {version}")
    assert read_status(lake.config).reconciles


@pytest.mark.slow
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


@pytest.mark.slow
def test_batch_table_has_each_batch_once_after_crashes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    crashes(spark, lake, monkeypatch, "after_changelog", 2)
    tables = Tables(spark, str(lake.warehouse))
    assert [r.batch_id for r in read_batches(tables).orderBy("batch_id").collect()] == [0, 1]
    run_once(spark, lake)
    run_once(spark, lake)
    assert [r.batch_id for r in tables[schemas.BATCHES].read().orderBy("batch_id").collect()] == [0, 1]
