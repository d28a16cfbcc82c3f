"""Sessions with limits and quarantine through Spark and Delta: tables, restores, views, quality and jobs."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import SessionWindows
from sessionlake.cli.tables import register_tables
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.publish.records import without_quarantined
from sessionlake.quality.run import run_quality
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from sessionlake.testing import SessionizerHarness
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.oracle.sql import SqlOracle
from tests.support import make_config, write_rows

SESSION = {
    "gap": "10 us",
    "grace": "20 us",
    "retention": "200 us",
    "gap_by": "case when kind = 'tv' and event_time is not null then interval 40 microseconds end",
    "max_gap": "40 us",
    "max_length": "100 us",
}
EVENTS = "select session_key, unix_micros(session_start), unix_micros(session_end), event_count from {} order by 1, 2"


def config_of(root: Path, **session: Any) -> Config:
    return make_config(root, session={**SESSION, **session}, quarantine={"max_events": 1})


def event(key: str, time: int, kind: str = "web") -> dict[str, Any]:
    return {"key": key, "time_us": time, "kind": kind, "v": 1}


FILES = [
    [
        event("a", 0, "tv"),
        event("a", 35),
        event("a", 46),
        *(event("b", time) for time in (90, 99, 100)),
        event("z", 150),
    ],
    [event("c", 100), event("d", 95, "tv"), event("a", 145, "tv")],
    [event("a", 170), event("a", 199), event("a", 200), event("z", 155)],
]


def expected(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    partials = [
        {
            "key": row["key"],
            "start_us": row["time_us"],
            "end_us": row["time_us"],
            "event_count": 1,
            "v": 1.0,
            "batch_id": 0,
            "own_gap": 40 if row["kind"] == "tv" else None,
        }
        for row in events
    ]
    found = SqlOracle().sessionize_limited(partials, [], 10, 100, 0)
    return [(row["key"], row["start_us"], row["end_us"], row["event_count"]) for row in found]


def stored(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    merged_rows(Tables.of(spark, config)).createOrReplaceTempView("every_session")
    return [tuple(row) for row in spark.sql(EVENTS.format("every_session")).collect()]


@pytest.mark.slow
def test_limits_from_file_to_view(spark: SparkSession, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    events: list[dict[str, Any]] = []
    for number, rows in enumerate(FILES):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, config, once=True)
        events += [row for row in rows if row["key"] not in "cd"]
        assert stored(spark, config) == expected(events)
        # What is restored for the next batch must know until when each session is open.
        shutil.rmtree(tmp_path / "store")
    reprocess_late(spark, config)
    run(spark, config, once=True)
    everything = expected([row for rows in FILES for row in rows])
    assert stored(spark, config) == everything

    assert backfill(spark, config, from_us=0, to_us=1000, dry_run=True).counts["corrections"] == 0
    compact(spark, config)
    assert stored(spark, config) == everything
    assert run_quality(spark, config, only=["sessions"]).counts["failed_critical"] == 0

    hidden = [row for row in everything if row[3] > 1]
    assert hidden
    register_tables(spark, config)
    names = "session_key, unix_micros(session_start), unix_micros(session_end), event_count"
    for live, kept in (("sessions_live", [row for row in everything if row[3] <= 1]), ("sessions_quarantined", hidden)):
        sql = f"select {names} from {live} order by 1, 2"
        assert [tuple(row) for row in spark.sql(sql).collect()] == kept
        assert query_tables(config, sql, 100)[1] == kept
    keys = "select session_key, sessions, events, unix_micros(first_start), rules from quarantined_keys order by 1"
    of_keys = [tuple(row) for row in spark.sql(keys).collect()]
    assert of_keys == query_tables(config, keys, 9)[1]
    assert {row[4] for row in of_keys} == {"max_events"}
    sent = without_quarantined(merged_rows(Tables.of(spark, config)).withColumn("op", F.lit("upsert")), config)
    assert sent.where("op = 'delete'").count() == len(hidden)


def test_limits_can_not_change_on_existing_sessions_and_thresholds_can(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    write_rows(tmp_path, "0.json", FILES[0])
    run(spark, config_of(tmp_path), once=True)
    with pytest.raises(
        PipelineStateError,
        match=r"^session.max_length: changed from '100 microseconds' to '200 microseconds' on existing sessions; ",
    ):
        run(spark, config_of(tmp_path, max_length="200 us"), once=True)
    loose = make_config(tmp_path, session=SESSION, quarantine={"max_events": 100})
    write_rows(tmp_path, "1.json", FILES[1])
    run(spark, loose, once=True)
    assert query_tables(loose, "select count(*) from sessions_quarantined", 1)[1] == [(0,)]


def test_a_gap_by_that_is_no_interval_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    write_rows(tmp_path, "0.json", FILES[0])
    told = r"^session.gap_by: 'v' is of type bigint, and must be of type interval$"
    with pytest.raises(ConfigError, match=told):
        run(spark, config_of(tmp_path, gap_by="v"), once=True)


def test_gap_by_equals_sparks_session_window_with_a_dynamic_gap(spark: SparkSession) -> None:
    """Times are tens of microseconds, and Spark's gaps half of that longer: whether its gap is inclusive does not matter."""
    rng = random.Random(3)
    kinds = ["tv", "web", "radio"]
    # Not `kind`, which says in the harness that a row is a correction.
    events = [
        {"key": rng.choice("abc"), "time_us": 10 * rng.randrange(6000), "medium": rng.choice(kinds)} for _ in range(400)
    ]
    rows = spark.createDataFrame(events).withColumn("t", F.timestamp_micros("time_us"))
    gap = F.expr(
        "case medium when 'tv' then '405 microseconds' when 'radio' then '15 microseconds' else '105 microseconds' end"
    )
    times = F.min("time_us"), F.max("time_us"), F.count("*")
    found = rows.groupBy("key", F.session_window("t", gap)).agg(*times).drop("session_window").collect()
    ours = "case medium when 'tv' then interval 400 microseconds when 'radio' then interval 10 microseconds end"
    with SessionizerHarness(
        SessionWindows(100, 0, 100_000).by(ours, "400 us"), {}, schema={"medium": "string"}
    ) as harness:
        harness.process(events)
        sessions = [(s["key"], s["start_us"], s["end_us"], s["event_count"]) for s in harness.sessions()]
    assert sessions == sorted(tuple(row) for row in found)
