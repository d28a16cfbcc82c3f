"""Dead letters of windows that are read again: each is once in all its windows, also in those that are closed."""

import time
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.stream.run import run
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.window_support import Row, hopping_config, tables_of
from tests.support import write_rows

MINUTE = 60_000_000
SIZE, ADVANCE = 10 * MINUTE, 5 * MINUTE
WINDOW = {
    "size": "10 minutes",
    "advance": "5 minutes",
    "offset": "0 us",
    "grace": "20 minutes",
    "retention": "1 day",
}
FUTURE = "too far in the future"


def config_of(root: Path, skew: str) -> Config:
    emit = {"early": "batch", "late": "batch"}
    return hopping_config(root, window={"kind": "hopping", **WINDOW}, emit=emit, event={"max_future_skew": skew})


def contents(spark: SparkSession, config: Config) -> list[Row]:
    columns = "window_key", F.unix_micros("window_start"), "event_count", "total"
    return sorted(map(tuple, merged_rows(tables_of(spark, config)).select(*columns).collect()))


def by_duckdb(rows: list[Row]) -> list[Row]:
    """Return key, start, events and total of the windows of (key, time, value)."""
    with duckdb.connect() as db:
        db.execute("create table e (key varchar, t bigint, v bigint)")
        db.executemany("insert into e values (?, ?, ?)", rows)
        return db.execute(
            f"""
            with held as (select key, v, unnest(generate_series(t - t % {ADVANCE}, t - {SIZE} + 1, -{ADVANCE})) as s from e)
            select key, s, count(*), sum(v)::bigint from held group by all order by all
            """
        ).fetchall()


@pytest.mark.slow
def test_letters_join_their_windows_once_also_closed_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns() // 1000
    good = [("a", now, 1), ("a", now + 60 * MINUTE, 2), ("a", now + 61 * MINUTE, 3), ("b", now + 180 * MINUTE, 4)]
    old = ("a", now - 2 * 1440 * MINUTE, 5)

    def write(number: int, *rows: Row) -> None:
        write_rows(tmp_path, f"{number}.json", [dict(zip(("key", "time_us", "v"), row, strict=True)) for row in rows])

    strict, mended = config_of(tmp_path, "1 minute"), config_of(tmp_path, "4 hours")
    write(0, *good[:3])
    run(spark, strict, once=True)
    write(1, good[3], old)
    run(spark, mended, once=True)
    assert contents(spark, mended) == by_duckdb([good[0], good[3]])
    with crash_at(monkeypatch, "redeem_before_corrections"), pytest.raises(CrashError):
        redeem(spark, mended, reasons=[FUTURE], run_id="killed")
    counts = redeem(spark, mended, reasons=[FUTURE, "beyond retention"]).counts
    assert (counts["dead_letters"], counts["redeemed"], counts["beyond_retention"]) == (3, 2, 1)
    assert redeem(spark, mended, reasons=[FUTURE]).counts["dead_letters"] == 0
    assert apply_corrections(spark, mended)
    assert contents(spark, mended) == by_duckdb(good)
    triggers = tables_of(spark, mended)["window_changelog"].read().where("trigger = 'restate'").count()
    # The windows of the hour ahead closed before their letters came.
    assert triggers == len(by_duckdb(good[1:3]))
    assert read_status(mended).reconciles
