"""A gap that changes from an event time on, through Spark and Delta (docs/rules.md, rule 244)."""

import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from sessionlake.cli.tables import register_tables
from sessionlake.config.load import Config
from sessionlake.config.times import format_time
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.operators.run import run
from sessionlake.quality.run import run_quality
from sessionlake.serve.queries import query_tables
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import crash_at
from tests.support import make_config, write_rows

CUT = 500
LONG, SHORT = "30 us", "10 us"
SESSION = {"gap": LONG, "grace": "40 us", "retention": "2000 us"}
BEFORE = [{"until": format_time(CUT), "gap": LONG}]
EARLIER: dict[str, Any] = {**SESSION, "gap": SHORT, "before": BEFORE}
# Of events that are in order by key and time: one begins a session at the cut, and after the gap of the one before.
ORACLE = """
with gaps as (select *, lag(t) over (partition by k order by t) as last_t from events),
begun as (select *, coalesce(t - last_t > if(last_t < $cut, 30, 10) or (last_t < $cut and t >= $cut), true) as begins from gaps),
numbered as (select *, sum(begins::int) over (partition by k order by t rows unbounded preceding) as number from begun)
select k, min(t), max(t), count(*) from numbered group by k, number order by 1, 2
"""


def files(seed: int) -> list[list[dict[str, Any]]]:
    """Return batches of events, of which the first three lie before the cut; some of each come late."""
    rng = random.Random(seed)
    found = []
    for number in range(6):
        low = 160 * number
        times = [rng.randrange(max(low - 150, 0), low + 155) for _ in range(40)]
        found.append(
            [
                {"key": rng.choice("abcd"), "time_us": min(time, CUT - 3 if number < 3 else 10_000), "v": 1}
                for time in times
            ]
        )
    return found


def expected(batches: list[list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    database = duckdb.connect()
    database.execute("create table events(k text, t bigint)")
    database.executemany("insert into events values (?, ?)", [(e["key"], e["time_us"]) for b in batches for e in b])
    return database.execute(ORACLE, {"cut": CUT}).fetchall()


def stored(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    merged_rows(Tables.of(spark, config)).createOrReplaceTempView("every_session")
    names = "session_key, unix_micros(session_start), unix_micros(session_end), event_count"
    return [tuple(row) for row in spark.sql(f"select {names} from every_session order by 1, 2").collect()]


@pytest.mark.slow
@pytest.mark.parametrize("emit", [None, {"early": "off", "full": "close"}])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_gap_from_a_time_on(spark: SparkSession, tmp_path: Path, emit: dict[str, str] | None, seed: int) -> None:
    sections: dict[str, Any] = {} if emit is None else {"emit": emit}
    before = make_config(tmp_path, session=SESSION, **sections)
    after = make_config(tmp_path, session=EARLIER, **sections)
    batches = files(seed)
    for number, rows in enumerate(batches):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, before if number < 3 else after, once=True)
        if number in (2, 4):
            shutil.rmtree(tmp_path / "store")
    reprocess_late(spark, after)
    run(spark, after, once=True)
    if emit is not None:
        run(spark, after, once=True, drain=True)
    everything = expected(batches)
    assert stored(spark, after) == everything
    assert sum(start < CUT for _, start, _, _ in everything) > 5
    assert backfill(spark, after, from_us=0, to_us=2000, dry_run=True).counts["corrections"] == 0
    assert run_quality(spark, after, only=["sessions"]).counts["failed_critical"] == 0
    register_tables(spark, after)
    sql = "select session_key, unix_micros(session_start), unix_micros(session_end), event_count from sessions_live order by 1, 2"
    assert [tuple(row) for row in spark.sql(sql).collect()] == everything
    assert query_tables(after, sql, 1000)[1] == everything


@pytest.mark.slow
@pytest.mark.parametrize("point", ["computed", "before_changelog"])
def test_a_batch_that_was_interrupted_before_the_change_is_run_to_its_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = make_config(tmp_path, session=SESSION, emit={"early": "off", "full": "close"})
    after = make_config(tmp_path, session=EARLIER, emit={"early": "off", "full": "close"})
    batches = files(3)
    for number, rows in enumerate(batches[:2]):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, before, once=True)
    write_rows(tmp_path, "2.json", batches[2])
    with crash_at(monkeypatch, point), pytest.raises(Exception, match="CrashError"):
        run(spark, before, once=True)
    for number, rows in enumerate(batches[3:]):
        run(spark, after, once=True)
        write_rows(tmp_path, f"{number + 3}.json", rows)
    run(spark, after, once=True)
    reprocess_late(spark, after)
    run(spark, after, once=True, drain=True)
    assert stored(spark, after) == expected(batches)


def test_a_time_that_events_have_come_to_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": CUT, "v": 1}])
    run(spark, make_config(tmp_path, session=SESSION), once=True)
    told = r"^session.before.0.until: 1970-01-01T00:00:00.000500\+00:00 is not after the watermark, 1970-01-01T00:00:00.000500"
    with pytest.raises(PipelineStateError, match=told):
        run(spark, make_config(tmp_path, session=EARLIER), once=True)
    told = r"^session.gap: changed .* restore the old value, keep it for earlier event times with \[\[session.before\]\], or rebuild"
    with pytest.raises(PipelineStateError, match=told):
        run(spark, make_config(tmp_path, session={**SESSION, "gap": SHORT}), once=True)
