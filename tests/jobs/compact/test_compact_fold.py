"""Folds by both ways, alone and at once, against DuckDB's fold of the whole changelog."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import read_sessions
from sessionlake.config.load import Config
from sessionlake.jobs.compact import compact
from sessionlake.jobs.compact.fold import MERGE, REWRITE, fold, read_tail
from sessionlake.jobs.compact.trim import trim, trim_point
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.schemas import YEAR_1_US, YEAR_9999_US
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import fold_point, rows_meeting, utc_date
from tests.engine.crash_support import crash_at
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.compact.compact_support import (
    DAY,
    append_batch,
    folded,
    history,
    live,
    metadata_of,
    one_event,
    sessions,
    upkeep_of,
)
from tests.support import make_config, write_rows

MB = 1 << 20


@pytest.fixture
def config(nine: Path, tmp_path: Path) -> Config:
    return copy_pipeline(nine, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", [MERGE, REWRITE])
def test_every_fold_point_gives_the_same_view(spark: SparkSession, config: Config, method: str) -> None:
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    expected = folded(history(tables))
    assert ("again", 10, 17, 7, 7, 7) in expected
    versions = {}
    for until in (3, 5, 6, 8):
        fold(upkeep_of(spark, config), until, method, MB)
        assert fold_point(tables) == until
        assert live(tables) == expected
        assert sessions(tables[schemas.SESSIONS].read()) == folded(history(tables, until))
        versions[until] = tables[schemas.SESSIONS].latest_version(), folded(history(tables, until))
    carried = metadata_of(tables, schemas.SESSIONS)
    assert (carried["batch_id"], carried["method"], carried["upserts"], carried["deletes"]) == (8, method, 3, 1)
    assert carried["changelog_version"] == tables[schemas.CHANGELOG].latest_version()
    fold(upkeep_of(spark, config), 8, method, MB)
    assert tables[schemas.SESSIONS].latest_version() == versions[8][0], "a second fold to the same batch committed"

    changelog = tables[schemas.CHANGELOG].latest_version()
    trim(upkeep_of(spark, config), schemas.CHANGELOG, 6)
    assert sorted({row.batch_id for row in tables[schemas.CHANGELOG].read().collect()}) == [7, 8]
    assert live(tables) == expected
    assert live(tables, snapshot_version=versions[6][0]) == expected
    for until in (3, 5):
        version, then = versions[until]
        assert live(tables, snapshot_version=version, changelog_version=changelog) == expected
        assert live(tables, snapshot_version=version, changelog_version=until - 1) == then
    last = tables[schemas.CHANGELOG].last_commit()
    assert last is not None
    assert last.metadata["batch_id"] == 8
    assert last.metadata["copied"]


@pytest.mark.slow
def test_trim_waits_for_the_safety_window(spark: SparkSession, config: Config) -> None:
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    fold(upkeep_of(spark, config), 6, REWRITE, MB)
    folded_ms = (tables[schemas.SESSIONS].commit_info(tables[schemas.SESSIONS].latest_version()) or {})["timestamp"]
    fold(upkeep_of(spark, config), 8, MERGE, MB)
    window_ends = folded_ms * 1000 + DAY
    assert trim_point(tables, config, window_ends - 1000) is None
    assert trim_point(tables, config, window_ends) == 6
    assert trim_point(tables, config, window_ends + DAY) == 8


@pytest.mark.slow
@pytest.mark.parametrize("method", [MERGE, REWRITE])
@pytest.mark.parametrize("other_until", [6, 8])
def test_a_fold_by_another_run_between_reading_and_commit(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch, method: str, other_until: int
) -> None:
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    expected = folded(history(tables))
    other = upkeep_of(spark, config, "other")

    def fold_before_us() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("sessionlake.engine.failpoints.hit", lambda _: None)
            fold(other, other_until, MERGE, MB)

    with crash_at(monkeypatch, "compact_tail_read", action=fold_before_us):
        fold(upkeep_of(spark, config, "ours"), 8, method, MB)
    assert fold_point(tables) == 8
    assert sessions(tables[schemas.SESSIONS].read()) == expected
    assert live(tables) == expected


@pytest.mark.slow
def test_two_runs_at_once_fold_each_batch_once(spark: SparkSession, config: Config) -> None:
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    expected = folded(history(tables))
    errors: list[Exception] = []

    def fold_to(until: int, method: str) -> None:
        try:
            fold(upkeep_of(spark, config, f"{until}"), until, method, MB)
        except Exception as error:  # noqa: BLE001 (whatever it is, it fails the test)
            errors.append(error)

    runs = [threading.Thread(target=fold_to, args=args) for args in ((8, REWRITE), (7, MERGE), (8, MERGE))]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert errors == []
    assert (fold_point(tables), sessions(tables[schemas.SESSIONS].read())) == (8, expected)


@pytest.mark.slow
def test_size_decides_the_method_and_dry_run_writes_nothing(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    names = (schemas.SESSIONS, schemas.CHANGELOG)
    before = [tables[name].latest_version() for name in names]
    report = compact(spark, config, dry_run=True)
    assert report.counts | {"rows_folded": 15, "sessions_upserted": 5, "sessions_deleted": 3} == report.counts
    assert report.notes == [
        "would fold up to batch 8 by rewrite: 8 sessions changed in 0 files that hold 0",
        "would trim nothing",
    ]
    assert [tables[name].latest_version() for name in names] == before
    assert not tables[schemas.JOB_RUNS].exists()
    append_batch(tables, 9, *(("upsert", f"k{i}", i, 1) for i in range(200)))
    fold(upkeep_of(spark, config), 9, REWRITE, MB)
    append_batch(tables, 10, *(("upsert", f"k{i}", i, 2) for i in range(20)))
    tail = read_tail(upkeep_of(spark, config), 10)
    assert tail.method("auto") == REWRITE
    tail.release()
    monkeypatch.setattr("sessionlake.jobs.compact.fold.REWRITE_BELOW", 0)
    for until, rows, method in ((9, 0, "nothing"), (10, 20, MERGE)):
        tail = read_tail(upkeep_of(spark, config), until)
        assert (tail.rows, tail.method("auto")) == (rows, method)
        tail.release()
    append_batch(tables, 11, *(("upsert", f"k{i}", i, 3) for i in range(20, 21)))
    tail = read_tail(upkeep_of(spark, config), 11)
    assert (tail.rows, tail.changed, tail.stored, tail.method("auto")) == (21, 21, 205, REWRITE)
    tail.release()


@pytest.mark.slow
def test_dates_are_utc_and_an_aggregate_may_be_called_changes(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path, aggregates={"changes": "sum(v)"})
    write_rows(tmp_path, "0.json", [{"key": "k", "time_us": 5, "v": 7}])
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        run(spark, config, once=True)
        for folds in range(2):
            if folds:
                compact(spark, config)
            found = read_sessions(spark, config).select("session_date", "changes").collect()
            assert [(str(row[0]), row[1]) for row in found] == [("1970-01-01", 7)]
        tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
        assert rows_meeting(tables, 0, 6).count() == tables[schemas.SESSIONS].read().count() == 1
        times = {0: "1970-01-01", -1: "1969-12-31", -DAY: "1969-12-31", -DAY - 1: "1969-12-30", DAY - 1: "1970-01-01"}
        times |= {YEAR_1_US: "0001-01-01", YEAR_9999_US: "9999-12-31"}
        rows = spark.createDataFrame([(us,) for us in times], "us long")
        dates = rows.select(utc_date(F.timestamp_micros("us")).cast("string")).collect()
        assert [row[0] for row in dates] == list(times.values())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.slow
def test_tables_that_the_stream_never_wrote_keep_nobody_from_starting(spark: SparkSession, tmp_path: Path) -> None:
    config = one_event(spark, tmp_path)
    for _ in range(2):
        compact(spark, config)
    assert run(spark, config, once=True).batches == 0
