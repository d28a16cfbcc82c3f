"""Final sessions beside the engines whose finals docs/emission.md names: real Kafka Streams with `suppress(untilWindowCloses)`, and Spark's append mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import SessionWindows
from sessionlake.config.load import parse_config
from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.stream.run import run
from sessionlake.testing import SessionizerHarness
from sessionlake.warehouse.tables import Tables
from tests.oracle.kafka_streams import forwarded, needs_kafka_streams
from tests.support import examples

Event = tuple[str, int, int]
MS = 1000
FINALS = {"early": "off", "full": "close", "late": "close"}


def in_order_within(grace: int, drafts: list[tuple[str, int, int, int]]) -> list[Event]:
    """Return events whose times, all even, lie at most a grace before the latest one so far."""
    latest, found = 100, []
    for key, step, back, value in drafts:
        time = max(100, latest + step - min(back, grace // 2 * 2))
        latest = max(latest, time)
        found.append((key, time, value))
    return found


def sent_by_event(gap: int, grace: int, events: list[Event]) -> list[list[tuple[Any, ...]]]:
    """Return the sessions that each event makes final: key, first and last time, count and sum."""
    windows, found = SessionWindows(gap * MS, grace * MS, 10**12), []
    emit = EmitSection(**FINALS)  # type: ignore[arg-type]
    schema = {"value": "long"}
    with SessionizerHarness(windows, {"total": "sum(value)"}, schema=schema, emit=emit) as harness:
        for key, time, value in events:
            out = harness.process([{"key": key, "time_us": time * MS, "value": value}])
            assert not out.late
            assert {row["op"] for row in out.changes} <= {"upsert"}
            rows = (
                (row["key"], row["start_us"] // MS, row["end_us"] // MS, row["event_count"], row["total"])
                for row in out.changes
            )
            found.append(sorted(rows))
    return found


DRAFTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 6).map(lambda n: 2 * n),
        st.integers(0, 12).map(lambda n: 2 * n),
        st.integers(0, 9),
    ),
    max_size=25,
)


@needs_kafka_streams
@examples(100)
@given(gap=st.integers(1, 12), half=st.integers(0, 12), drafts=DRAFTS)
def test_an_event_makes_those_sessions_final_that_it_makes_final_in_kafka(
    gap: int, half: int, drafts: list[tuple[str, int, int, int]]
) -> None:
    # The sum of both is odd and times are even, so that no event comes exactly as a session closes.
    grace = 2 * half + (gap + 1) % 2
    events = [*in_order_within(grace, drafts), ("z", 10_000, 1)]
    topology = {"kind": "session", "gap": gap, "grace": grace, "finals": True}
    assert sent_by_event(gap, grace, events) == [sorted(some) for some in forwarded(topology, events)]


@needs_kafka_streams
def test_kafka_parts_a_session_if_its_last_event_comes_as_it_closes() -> None:
    """Kafka sends a session as the grace ends, and an event of that very moment is another session; here it joins (rules 4 and 5)."""
    events = [("a", 100, 1), ("b", 115, 1), ("a", 105, 1), ("z", 1000, 1)]
    kafka = forwarded({"kind": "session", "gap": 10, "grace": 5, "finals": True}, events)
    assert kafka == [[], [("a", 100, 100, 1, 1)], [], [("a", 105, 105, 1, 1), ("b", 115, 115, 1, 1)]]
    assert sent_by_event(10, 5, events) == [[], [], [], [("a", 100, 105, 2, 2), ("b", 115, 115, 1, 1)]]


@pytest.mark.slow
def test_finals_are_those_of_sparks_append_mode(spark: SparkSession, tmp_path: Path) -> None:
    """Files half an hour apart, events up to the grace out of order; the last file lets all others close."""
    draw, minute = np.random.default_rng(5), 60_000_000
    (tmp_path / "events").mkdir()
    for number in range(7):
        first = number * 30 * minute if number < 6 else 1000 * minute
        times = first + draw.integers(0, 30 * minute, 400) - draw.integers(0, 19 * minute, 400) + 1_700_000_000_000_000
        table = pa.table(
            {
                "key": [f"user-{n}" for n in draw.integers(0, 60, 400)],
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "amount": draw.integers(0, 100, 400),
            }
        )
        pq.write_table(table, tmp_path / "events" / f"{number}.parquet")
    config = parse_config(
        {
            "pipeline": {"name": "finals", "warehouse": "warehouse", "shards": 2},
            "source": {"kind": "files", "path": "events", "format": "parquet", "max_files_per_batch": 1},
            "event": {"key": "key", "time": "ts"},
            "session": {"gap": "10 minutes", "grace": "50 minutes", "retention": "7 days"},
            "emit": FINALS,
            "aggregates": {"total": "sum(amount)"},
        },
        tmp_path,
    )
    run(spark, config, once=True)
    rows = Tables.of(spark, config)[SESSIONS.changes].read()
    names = ("unix_micros(session_start)", "unix_micros(session_end)", "event_count", "total")
    ours = sorted(tuple(row) for row in rows.selectExpr("session_key", *names).collect())

    events = spark.readStream.schema("key string, ts timestamp, amount long").option("maxFilesPerTrigger", 1)
    read = events.parquet(str(tmp_path / "events")).withWatermark("ts", "50 minutes")
    window = F.session_window("ts", "10 minutes")
    sums = read.groupBy("key", window.alias("w")).agg(
        F.min("ts").alias("first"),
        F.max("ts").alias("last"),
        F.count("*").alias("events"),
        F.sum("amount").alias("total"),
    )
    writer = sums.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "spark"))
    query.awaitTermination()
    given = spark.read.parquet(str(tmp_path / "spark"))
    theirs = given.selectExpr("key", "unix_micros(first)", "unix_micros(last)", "events", "total").collect()
    assert ours == sorted(tuple(row) for row in theirs)
    assert len(ours) > 200
