"""Headers of a topic's records as the column `_headers` (rule 468)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.columnar.column_types import TIME
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError, JobError, SourceError
from sessionlake.jobs.redeem.job import redeem
from sessionlake.serve.queries import query_tables
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.kafka_records import HEADER, header_maps
from sessionlake.sources.decoding.whole import KIND, RAW, RECORD, SCHEMA
from sessionlake.sources.decoding.whole_rows import WholeDecoder
from sessionlake.sources.record_columns import META
from sessionlake.stream.run import run
from sessionlake.testing import Harness
from tests.sources.kafka_support import Topic
from tests.support import examples

Headers = list[tuple[str, bytes | None]] | None
texts = st.text(max_size=2).map(str.encode)
headers = st.lists(st.tuples(st.sampled_from(["a", "b", "é"]), st.none() | texts | st.binary(max_size=4)), max_size=5)


def text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


@given(st.lists(st.none() | headers, max_size=8), st.integers(0, 3))
@examples(200)
def test_the_last_header_of_a_name_counts(records: list[Headers], first: int) -> None:
    """A plain dict is the model; a part of an array gives what the records alone give."""
    maps = header_maps(pa.array(records, pa.list_(HEADER)).slice(first))
    assert [dict(pairs) for pairs in maps.to_pylist()] == [
        {name: text_of(value) for name, value in record or ()} for record in records[first:]
    ]
    assert all(len(pairs) == len(dict(pairs)) for pairs in maps.to_pylist())


def sections(root: Path, **source: Any) -> dict[str, Any]:
    base = {"kind": "kafka", "bootstrap_servers": "localhost:1", "topic": "t", "format": "json"}
    return {
        "pipeline": {"name": "headers", "warehouse": str(root / "warehouse"), "shards": 2, "archive": True},
        "source": base | source,
        "event": {
            "key": "_headers['tenant']",
            "time": "time",
            "time_unit": "s",
            "where": "_headers['kind'] is distinct from 'test'",
            "columns": {"trace": "coalesce(_headers['trace-id'], 'none')"},
        },
        "session": {"gap": "10 seconds", "grace": "1 minute", "retention": "1 day"},
        "aggregates": {
            "traces": "count_distinct(trace)",
            "most": "max(size(_headers))",
            "blind": "count() filter (where _headers['raw'] is null)",
        },
    }


T0 = 1_700_000_000
SENT: list[tuple[int, list[tuple[str, bytes | None]]]] = [
    (0, [("tenant", b"x"), ("tenant", b"a"), ("trace-id", b"1"), ("raw", b"\xff\x00")]),
    (1, [("tenant", b"a"), ("trace-id", b"2"), ("raw", b"text"), ("none", None)]),
    (2, [("tenant", b"a"), ("kind", b"test")]),
    (500, [("tenant", b"b")]),
    (3, []),
]


def test_headers_of_a_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = Topic.create(broker, partitions=1)
    given = sections(tmp_path, topic=topic.name, bootstrap_servers=broker.bootstrap_servers)
    config = parse_config(given, tmp_path)
    topic.send({"value": json.dumps({"time": T0 + at}), "headers": found} for at, found in SENT)
    counts = run(spark, config, once=True).counts
    assert [counts[name] for name in ("input", "accepted", "filtered", "dead", "late")] == [5, 3, 1, 1, 0]
    query = "select session_key, traces, most, blind from sessions_live order by 1"
    assert query_tables(config, query, 10)[1] == [("a", 2, 4, 1), ("b", 1, 1, 1)]
    reasons = query_tables(config, "select reason, source from dead_letters", 10)[1]
    assert [(reason, source.partition("@")[0]) for reason, source in reasons] == [("null key", f"{topic.name}/0/4")]
    topic.send([{"value": json.dumps({"time": T0 + 4}), "headers": [("tenant", b"late"), ("n", b"7")]}])
    assert run(spark, config, once=True).counts["late"] == 1
    for table, key, expected in (
        ("late_events", "late", {"tenant": "late", "n": "7"}),
        ("events", "b", {"tenant": "b"}),
    ):
        rows = spark.read.format("delta").load(f"{config.pipeline.warehouse}/{table}").where(f"key = '{key}'")
        assert [row["event"]["_headers"] for row in rows.collect()] == [expected]
    with pytest.raises(JobError, match="lacks the record's own columns; send its record to the topic again"):
        redeem(spark, config, reasons=["null key"])


def test_headers_of_rows_in_a_test_are_a_dict(tmp_path: Path) -> None:
    rows = [{"time": datetime.fromtimestamp(T0 + at, UTC), "_headers": dict(found)} for at, found in SENT]
    config = sections(tmp_path)
    config["event"].pop("time_unit")
    texts = [{**row, "_headers": {name: text_of(v) for name, v in row["_headers"].items()}} for row in rows]
    output = Harness(config).process(texts)
    assert [(row["session_key"], row["traces"], row["most"], row["blind"]) for row in output.changes] == [
        ("a", 2, 4, 1),
        ("b", 1, 1, 1),
    ]
    assert len(output.dead) == 1


def test_whole_rows_have_no_headers(tmp_path: Path) -> None:
    config = sections(tmp_path)
    config["pipeline"]["archive"] = "all"
    with pytest.raises(
        ConfigError, match=r"^pipeline.archive: 'all' keeps records without headers, and '_headers' is read"
    ):
        Harness(config).process([{"time": T0, "_headers": {"tenant": "a"}}])
    record = pa.array([{"key": None, "timestamp": 0, "partition": 0, "offset": 0}], SCHEMA.field(RECORD).type)
    rows = pa.table({KIND: ["json"], RAW: ["{}"], RECORD: record, "batch_id": [0]})
    columns = EventColumns(None, "_timestamp", None, None, ("_headers",), {**META, "_timestamp": TIME})
    with pytest.raises(SourceError, match="the archive has no '_headers'"):
        list(WholeDecoder(columns).decode(rows))
