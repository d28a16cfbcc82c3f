"""Several topics are read as if they were one; each row knows its topic, and no two partitions have one number."""

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
from sessionlake.config.load import Config, parse_config
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError, SourceError
from sessionlake.observe.datasets import datasets
from sessionlake.reading import read
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.kafka_records import RecordDecoder
from sessionlake.sources.decoding.kafka_records import Topic as Decoded
from sessionlake.sources.kafka import _needed
from sessionlake.sources.partitions import PARTITIONS, slot_of
from sessionlake.sources.record_columns import META, TOPIC
from sessionlake.stream.positions import PARTITION
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from tests.sources.kafka_support import Row, Topic, as_record, event, expected_sessions, some_events

TIME = pa.timestamp("us", "UTC")


@given(st.text(min_size=1), st.integers(0, PARTITIONS - 1))
def test_numbers_of_partitions_fit_positions(topic: str, partition: int) -> None:
    number = slot_of(topic) * PARTITIONS + partition
    assert (number // PARTITIONS, number % PARTITIONS) == (slot_of(topic), partition)
    assert 0 <= number * PARTITION + PARTITION - 1 < 1 << 63
    assert number < 1 << 31


def test_a_row_has_its_topic_and_a_dead_letter_the_partition_in_it() -> None:
    numbers = [slot_of("a") * PARTITIONS + 3, slot_of("b") * PARTITIONS, slot_of("b") * PARTITIONS + 1]
    values = [json.dumps({"k": "x", "v": 1}).encode(), b"{broken", json.dumps({"k": "y", "v": 2}).encode()]
    records = pa.table(
        {
            "value": pa.array(values),
            "partition": pa.array(numbers, pa.int32()),
            "offset": pa.array([7, 8, 9]),
            "timestamp": pa.array([0, 1_000, 2_000], TIME),
        }
    )
    types = {**META, TOPIC: pa.string(), "k": pa.string(), "v": pa.int64()}
    columns = EventColumns("k", "_timestamp", None, None, ("v", TOPIC, "_partition"), types)
    (rows,) = RecordDecoder(
        columns, Decoded("b, a", avro=False, slots={name: slot_of(name) for name in ("b", "a")})
    ).decode(records)
    assert rows.table[TOPIC].to_pylist() == ["a", "b", "b"]
    assert rows.table["_partition"].to_pylist() == numbers
    assert rows.source(pa.array([0, 1, 2]).to_numpy()).to_pylist() == [
        "a/3/7@1970-01-01T00:00:00.000Z",
        "b/0/8@1970-01-01T00:00:00.001Z",
        "b/1/9@1970-01-01T00:00:00.002Z",
    ]


def config_of(root: Path, servers: str, topics: list[str], **sections: Any) -> Config:
    source = {
        "kind": "kafka",
        "bootstrap_servers": servers,
        "topics": topics,
        "format": "json",
        "path": "",
        "max_files_per_batch": None,
    }
    session = {"gap": "10 minutes", "grace": "30 days", "retention": "60 days"}
    root.mkdir(exist_ok=True)
    found = {
        "pipeline": {"name": "topics", "warehouse": "warehouse", "shards": 2},
        "source": {name: value for name, value in source.items() if value},
        "event": {"key": "key", "time": "time", "time_unit": "s"},
        "session": session,
        "aggregates": {"total": "sum(v)"},
        **sections,
    }
    return parse_config({name: section for name, section in found.items() if section is not None}, root)


@pytest.mark.slow
def test_sessions_of_several_topics_equal_those_of_all_their_events(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topics, rows = [Topic.create(broker) for _ in range(3)], some_events(5, 300)
    for topic, part in zip(topics, (rows[:100], rows[100:150], rows[150:]), strict=True):
        topic.send(map(as_record, part))
    names = [topic.name for topic in topics]
    first = config_of(tmp_path, broker.bootstrap_servers, names[:2])
    assert run(spark, first, once=True).counts["accepted"] == 150
    # A topic that is added is read from its beginning.
    topics[0].send([{"value": "{broken", "partition": 1}])
    config = config_of(tmp_path, broker.bootstrap_servers, names)
    assert run(spark, config, once=True).counts["accepted"] == len(rows) - 150
    found = [
        (
            row["session_key"],
            int(row["session_start"].timestamp()),
            int(row["session_end"].timestamp()),
            row["event_count"],
            row["total"],
        )
        for row in read(spark, config).collect()
    ]
    assert sorted(found) == expected_sessions(rows)
    (dead,) = spark.read.format("delta").load(f"{config.pipeline.warehouse}/{schemas.DEAD_LETTERS}").collect()
    assert dead["source"].startswith(f"{names[0]}/1/")
    assert [dataset.name for dataset in datasets(config, "run", {})[0]][:3] == names


@pytest.mark.slow
def test_a_topic_that_is_taken_out_is_told_before_its_records_count_as_lost(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    one, two = (Topic.create(broker, partitions=1) for _ in range(2))
    for topic in (one, two):
        topic.send([as_record(event("ann", 1, 1))])
    run(spark, config_of(tmp_path, broker.bootstrap_servers, [one.name, two.name]), once=True)
    fewer = config_of(tmp_path, broker.bootstrap_servers, [one.name])
    told = (
        rf"^source.topics: '{two.name}' is not among them any more, and its offsets are in the checkpoint; put it back"
    )
    with pytest.raises(SourceError, match=told):
        run(spark, fewer, once=True)


@pytest.mark.slow
def test_records_of_avro_know_their_topic(spark: SparkSession, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "k", "type": "string"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    source = SourceSection(
        kind="kafka",
        bootstrap_servers="localhost:1",
        topics=["a", "b"],
        format="avro",
        avro_schema=str(tmp_path / "r.avsc"),
    )
    columns = EventColumns("k", "_timestamp", None, None, (TOPIC,), {**META, TOPIC: pa.string(), "k": pa.string()})
    given = "value binary, partition int, offset bigint, timestamp timestamp, topic string"
    rows = spark.createDataFrame([(b"\x02x", 3, 1, datetime(2026, 1, 1, tzinfo=UTC), "b")], given)
    (found,) = rows.select(*_needed(spark, source, columns)).collect()
    assert (found["event_k"], found["partition"]) == ("x", slot_of("b") * PARTITIONS + 3)


@pytest.mark.slow
def test_a_table_by_offset_and_keys_by_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    one, two = (Topic.create(broker, partitions=1) for _ in range(2))
    rows: list[Row] = [event(f"user-{n % 5}", n, n) for n in range(40)]
    one.send(map(as_record, rows[:20]))
    two.send(map(as_record, rows[20:]))
    config = config_of(
        tmp_path,
        broker.bootstrap_servers,
        [one.name, two.name],
        event={"key": ["shop", "key"], "time": "time", "time_unit": "s", "columns": {"shop": "_topic"}},
        session=None,
        aggregates=None,
        table={"columns": ["v"], "order": "offset"},
    )
    run(spark, config, once=True)
    two.send([as_record(event("user-1", 5, 99))])
    run(spark, config, once=True)
    found = {(row["shop"], row["key"]): row["v"] for row in read(spark, config).collect()}
    expected = {(one.name, f"user-{n}"): 15 + n for n in range(5)} | {(two.name, f"user-{n}"): 35 + n for n in range(5)}
    assert found == expected | {(two.name, "user-1"): 99}


def colliding() -> tuple[str, str]:
    """Return two topics of one slot."""
    seen: dict[int, str] = {}
    for number in range(1 << 12):
        name = f"t{number}"
        if (other := seen.setdefault(slot_of(name), name)) != name:
            return other, name
    raise AssertionError


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"topics": []}, "source.topics: "),
        ({"topics": ["a", "a"]}, "source.topics: 'a' is there twice; name it once"),
        ({"topics": ["a", "b c"]}, "source.topics: 'b c' is no topic; "),
        ({"topics": ["a", "b"], "topic": "a"}, "source.topic: is one of topics; "),
        ({"topics": ["a", "b"], "tombstones": True}, "source.tombstones: go with one topic; "),
        ({"topics": [*colliding()]}, "source.topics: the partitions of "),
        ({"kind": "files", "path": "events", "topics": ["a"]}, "source.topics: goes with kind 'kafka' only"),
    ],
)
def test_topics_that_can_not_be_read_together_are_told(tmp_path: Path, source: Row, told: str) -> None:
    base = {"kind": "kafka", "bootstrap_servers": "localhost:1", "format": "json"}
    if source.get("kind") == "files":
        base = {"format": "json"}
    sections = {
        "pipeline": {"name": "p", "warehouse": "warehouse"},
        "source": base | source,
        "event": {"key": "key", "time": "time", "time_unit": "s"},
        "session": {"gap": "10 minutes", "grace": "1 day", "retention": "2 days"},
    }
    with pytest.raises(ConfigError) as error:
        parse_config(sections, tmp_path)
    assert str(error.value).startswith(told), error.value


def test_whole_rows_of_several_topics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^pipeline.archive: 'all' keeps rows, but not which of source.topics"):
        config_of(tmp_path, "localhost:1", ["a", "b"], pipeline={"name": "p", "warehouse": "w", "archive": "all"})
