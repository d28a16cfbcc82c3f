"""Sessions that expire, end to end on Spark: by the harness, whatever becomes of stores and jobs, and after kill -9."""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import sessionlake
from sessionlake import SessionWindows
from sessionlake.config.load import Config
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.observe import status as status_module
from sessionlake.observe.status import read_status
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.testing import SessionizerHarness
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CONFIG, TABLES, Lake, assert_same, assert_stands_sigkill, crashes, run_once
from tests.support import make_config, write_rows
from tests.warehouse.replaced_support import assert_replaced

Row = dict[str, Any]
WHOLE: Any = {"from_us": 0, "to_us": 1_000_000}
TTL = {"pattern": "scan", "ttl": "40 us", "clock": "stream", "every": "1 us"}
"""Of sessions with a gap of 10 us, a grace of 20 and a retention of 60."""


LATE = 108


def event(key: str, time: int) -> Row:
    return {"key": key, "time_us": time, "v": time % 7}


FILES = [
    [event("a", 100), event("b", 105), event("c", 120), event("d", 124)],
    [event("a", 130), event("b", 141), event("e", 142)],
    [event("a", LATE), event("b", 150), event("f", 166)],
    [event("g", 190), event("a", 170)],
    [event("h", 200)],
]
"""Closed sessions are taken away from the third batch on; one event comes late beside such a one."""


def config_of(root: Path, ttl: Row | None = None, **sections: Row) -> Config:
    return make_config(root, **sections, **({} if ttl is None else {"ttl": ttl}))


def rows_of(config: Config, table: str) -> list[Row]:
    """Return a table's rows as of now, read without Spark, times in microseconds."""
    found = pa.table(DeltaTable(f"{config.pipeline.warehouse}/{table}").to_pyarrow_table())
    fields = [(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in found.schema]
    plain: list[Row] = found.cast(pa.schema(fields)).to_pylist()
    return plain


def sessions_in(config: Config) -> list[tuple[str, int, int]]:
    """Return what readers see."""
    names = "session_key, epoch_us(session_start), epoch_us(session_end)"
    return sorted(sessionlake.read_sessions(config).select(names).fetchall())


def last_of(spark: SparkSession, config: Config) -> Row:
    last = Tables.of(spark, config)[schemas.CHANGELOG].last_commit()
    assert last is not None
    return dict(last.metadata)


def assert_exact(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that status knows how many events sessions must hold: without those removed, the numbers are found wrong."""
    with monkeypatch.context() as patch:
        patch.setattr(status_module, "EXPIRED_EVENTS", "none")
        assert not read_status(config).reconciles


@pytest.mark.slow
def test_every_batch_removes_what_the_harness_does_with_stores_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, TTL, pipeline={"keep_replaced": True})
    windows = SessionWindows.with_gap("10 us").grace("20 us").until("60 us")
    with SessionizerHarness(windows, {"total": "sum(v)"}, ttl=TTL) as harness:
        wanted: list[tuple[Any, ...]] = []
        for number, rows in enumerate(FILES):
            write_rows(tmp_path, f"{number}.json", rows)
            changes = harness.process(rows).changes
            wanted += [(number, c["op"], c["key"], c["start_us"], c["event_count"]) for c in changes]
            if number in (2, 4):
                run(spark, config, once=True)
                shutil.rmtree(config.driver_store_dir)
        names = ("batch_id", "op", "session_key", "session_start", "event_count")
        log = sorted(tuple(row[name] for name in names) for row in rows_of(config, schemas.CHANGELOG))
        kept, columns = rows_of(config, schemas.REPLACED_ROWS), ("session_key", "session_start", "session_end")
        logged = rows_of(config, schemas.CHANGELOG)
        assert assert_replaced(kept, logged, columns[:2], (*columns, "event_count", "total", "revision"))
        assert log == sorted((*w[:4], 0 if w[1] == "delete" else w[4]) for w in wanted)
        there = sessions_in(config)
        assert there == [(row["key"], row["start_us"], row["end_us"]) for row in harness.sessions()]
        last = last_of(spark, config)
        assert last["state"] == harness.state
        removed = [row for row in wanted if row[1] == "delete"]
        assert {row[2] for row in removed} >= {"a", "c", "d"}
        told = rows_of(config, schemas.TOPIC_TOMBSTONES)
        assert sorted((row["batch_id"], row["key"], row["start_time"]) for row in told) == (
            sorted((row[0], row[2], row[3]) for row in removed)
        )
    status = read_status(config)
    assert (status.reconciles, status.expiry_lag_us) == (True, harness.state["expiry_lag_us"])
    assert_exact(config, monkeypatch)


@pytest.mark.slow
def test_jobs_agree_on_what_has_expired_and_ttl_may_change_and_go(spark: SparkSession, tmp_path: Path) -> None:
    config = config_of(tmp_path, TTL)
    for number, rows in enumerate(FILES[:4]):
        # But for the late event, of which a backfill would make a session of its own.
        write_rows(tmp_path, f"{number}.json", [row for row in rows if row["time_us"] != LATE])
    run(spark, config, once=True)
    assert last_of(spark, config)["state"]["expired_events"] > 0
    there = sessions_in(config)
    assert run_quality(spark, config, only=["sessions", "session_changelog", "events"]).counts["failed_critical"] == 0
    # What the rule has removed is not found missing, also once the changelog is folded and trimmed.
    assert backfill(spark, config, **WHOLE, dry_run=True).counts["corrections"] == 0
    compact(spark, config.model_copy(update={"compact": config.compact.model_copy(update={"safety": "0 s"})}))
    assert backfill(spark, config, **WHOLE).counts["corrections"] == 0
    assert sessions_in(config) == there
    # Another rule: what it names goes with the next cleanup, and the job finds nothing of it any more.
    where = {"pattern": "time_boxed", "where": "session_key < 'g' and total >= 0", "clock": "stream", "every": "1 us"}
    other = config_of(tmp_path, where)
    shutil.rmtree(config.driver_store_dir)
    write_rows(tmp_path, "4.json", FILES[4])
    run(spark, other, once=True)
    assert "expiry_lag_us" not in last_of(spark, other)["state"]
    assert expire(spark, other, where="session_key in ('c', 'd')").counts["expired"] == 0
    # None any more: what is left stays, and the numbers still add up.
    bare = config_of(tmp_path)
    left = sessions_in(bare)
    write_rows(tmp_path, "5.json", [event("i", 230)])
    run(spark, bare, once=True)
    assert sessions_in(bare) == sorted([*left, ("i", 230, 230)])
    assert read_status(bare).reconciles
    assert run_quality(spark, bare, only=["sessions"]).counts["failed_critical"] == 0
    forget(spark, bare, keys=["a"])
    apply_corrections(spark, bare)
    for table, key in ((schemas.TOPIC_TOMBSTONES, "key"), (schemas.CHANGELOG, "session_key")):
        assert "a" not in {row[key] for row in rows_of(bare, table)}


@pytest.mark.slow
def test_run_once_ends_with_a_cleanup_by_the_clock(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, {"pattern": "scan", "where": "event_count = 1", "every": "1 us"})
    write_rows(tmp_path, "0.json", [event("a", 1), event("b", 1), event("b", 2), event("c", 50)])
    run(spark, config, once=True)
    assert sessions_in(config) == [("b", 1, 2), ("c", 50, 50)]
    last = last_of(spark, config)
    assert (last["batch_id"], last["counts"]["deleted_by_ttl"]) == (1, 1)
    assert read_status(config).reconciles
    assert_exact(config, monkeypatch)


class ExpiringLake(Lake):
    """Sessions that expire with the watermark."""

    template: ClassVar[str] = f'{CONFIG}\n[ttl]\npattern = "time_boxed"\nttl = "30 minutes"\nclock = "stream"\n'
    tables: ClassVar[tuple[str, ...]] = (*TABLES, schemas.TOPIC_TOMBSTONES)

    def content(self) -> dict[str, Any]:
        """Return all but how fast sessions were looked at, by which nothing went here."""
        found = super().content()
        for _, _, state in found["counts"]:
            state.pop("scan_rows_per_ms", None)
        return found


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ExpiringLake:
    """Return a pipeline that ran the first half of its input."""
    root = tmp_path_factory.mktemp("expiring")
    lake = ExpiringLake(root / "half", root / "events")
    lake.write_files(range(2))
    run_once(spark, lake)
    lake.correct(spark)
    lake.write_files(range(2, 4))
    return lake


@pytest.fixture(scope="module")
def expected(spark: SparkSession, half: ExpiringLake) -> ExpiringLake:
    """Return the same with all of its input, undisturbed."""
    lake = half.copy(half.root.parent / "expected")
    run_once(spark, lake)
    assert lake.commits()[2]["counts"]["deleted_by_ttl"] > 0, "the batch that dies removes nothing"
    return lake


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_archived_tombstones", "before_changelog", "after_changelog"])
def test_sigkill_of_the_driver_in_a_batch_that_removes_sessions(
    spark: SparkSession, tmp_path: Path, half: ExpiringLake, expected: ExpiringLake, point: str
) -> None:
    assert_stands_sigkill(spark, half.copy(tmp_path / "killed"), expected, point)


@pytest.mark.slow
def test_a_crash_lost_stores_and_other_shards_change_nothing(
    spark: SparkSession,
    tmp_path: Path,
    half: ExpiringLake,
    expected: ExpiringLake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = half.copy(tmp_path / "crashed")
    crashes(spark, lake, monkeypatch, "before_changelog")
    shutil.rmtree(lake.stores)
    lake.configure(shards=2)
    run_once(spark, lake)
    assert_same(lake, expected)
