"""Sessions that are sent by policy on Spark: the rows of every batch with lost stores, and the jobs one after the other."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.jobs.backfill.job import backfill
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS, STORED
from sessionlake.reading import read
from sessionlake.serve.database import open_database
from sessionlake.stream.run import run
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import FIRST, SECOND, T0, run_once
from tests.operator_forms import PolicyLake

pytestmark = pytest.mark.slow
DAY_US = 86_400_000_000


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> PolicyLake:
    return filled(spark, tmp_path)


def filled(spark: SparkSession, root: Path, **settings: Any) -> PolicyLake:
    lake = PolicyLake(root / "lake", root / "events")
    lake.configure(**settings)
    lake.write_files(FIRST)
    run_once(spark, lake)
    shutil.rmtree(lake.stores)
    lake.write_files(SECOND)
    run_once(spark, lake)
    return lake


def rows_of(spark: SparkSession, lake: PolicyLake, of: Changelog) -> list[tuple[Any, ...]]:
    """Return key, start, end, count and revision of the last row of each session."""
    rows = merged_rows(Tables.of(spark, lake.config), of=of)
    times = (F.unix_micros(name) for name in (of.start, of.end))
    return sorted(tuple(row) for row in rows.select(of.key, *times, "event_count", "revision").collect())


def test_every_batch_sends_what_a_flag_a_session_says_with_lost_stores(spark: SparkSession, lake: PolicyLake) -> None:
    lake.check()
    assert lake.sent() == lake.answer()
    assert read(spark, lake.config).count() == len(lake.latest("session_key", "session_start"))


def finals(spark: SparkSession, lake: PolicyLake) -> list[tuple[str, int, bool]]:
    """Return key, start and `final` of each row of sessions_live, the same by Spark and by DuckDB."""
    start = F.unix_micros("session_start")
    found = sorted(tuple(row) for row in read(spark, lake.config).select("session_key", start, "final").collect())
    text = "select session_key, epoch_us(session_start), final from sessions_live order by all"
    with closing(open_database(lake.config, Lake.of(lake.config))) as database:
        assert database.execute(text).fetchall() == found
    return found


def test_a_row_is_final_once_its_session_is_closed_as_it_was_sent(spark: SparkSession, lake: PolicyLake) -> None:
    some = finals(spark, lake)
    assert not all(final for *_, final in some)
    run(spark, lake.config, once=True, drain=True)
    every = finals(spark, lake)
    assert every
    assert all(final for *_, final in every)
    compact(spark, lake.config)
    assert finals(spark, lake) == every


def test_the_jobs_know_both_tables(spark: SparkSession, tmp_path: Path) -> None:
    # Late events are within the retention once all has closed.
    lake = filled(spark, tmp_path, retention="4 hours")
    config = lake.config
    run(spark, config, once=True, drain=True)
    sent = rows_of(spark, lake, SESSIONS)
    assert sent == rows_of(spark, lake, STORED), "when all has closed, all is sent"
    compact(spark, config)
    assert sent == rows_of(spark, lake, SESSIONS) == rows_of(spark, lake, STORED)

    reprocess_late(spark, config)
    run(spark, config, once=True)
    restated = Tables.of(spark, config)[SESSIONS.changes].read().where("trigger = 'restate'").count()
    assert restated > 0
    assert rows_of(spark, lake, SESSIONS) == rows_of(spark, lake, STORED)
    found = backfill(spark, config, from_us=T0 * 1_000_000 - DAY_US, to_us=T0 * 1_000_000 + DAY_US)
    assert found.counts["corrections"] == 0, found.notes
    assert found.counts["sessions"] > 0

    expired = expire(spark, config, where="session.event_count > 3")
    assert expired.counts["expired"] > 0
    run(spark, config, once=True)
    left = rows_of(spark, lake, SESSIONS)
    assert left == rows_of(spark, lake, STORED)
    assert max(row[3] for row in left) <= 3

    key = left[0][0]
    forgotten = forget(spark, config, [key])
    assert not forgotten.failed, forgotten.notes
    left = [row for row in left if row[0] != key]
    assert rows_of(spark, lake, SESSIONS) == left == rows_of(spark, lake, STORED)
    assert read_status(config).reconciles

    backup(spark, config, str(tmp_path / "backup"))
    other = PolicyLake(tmp_path / "other", lake.events)
    restore(spark, other.config, str(tmp_path / "backup"))
    assert rows_of(spark, other, SESSIONS) == left == rows_of(spark, other, STORED)


def test_its_quality_holds(spark: SparkSession, lake: PolicyLake) -> None:
    from sessionlake.quality.run import run_quality

    lax = lake.config.quality.model_copy(update={"max_late_rate": 1, "max_dead_rate": 1, "max_null_key_rate": 1})
    report = run_quality(spark, lake.config.model_copy(update={"quality": lax}))
    assert not report.failed, report.notes
