"""The Kafka source against a real broker: sessions, dead letters, tombstones, Avro, and what a user gets wrong."""

import base64
import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.kafka.broker import Broker, free_port
from sessionlake.config.load import Config, load_config
from sessionlake.errors import ConfigError, JobError, SourceError, UnreachableError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.expire import expire
from sessionlake.jobs.rebuild import rebuild
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.quality.run import run_quality
from sessionlake.reading import read_sessions
from sessionlake.sources.kafka import KafkaSource
from sessionlake.stream.run import RunSummary, run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.sources.kafka_support import (
    T0,
    Row,
    Topic,
    as_record,
    config_of,
    event,
    expected_sessions,
    pipeline,
    some_events,
)
from tests.sources.sessions_support import sessions


def table(spark: SparkSession, config: Config, name: str) -> DataFrame:
    return Tables(spark, config.pipeline.warehouse, CHANGELOG)[name].read()


def counts(summary: RunSummary) -> dict[str, int]:
    return {name: value for name, value in summary.counts.items() if value}


@pytest.fixture(scope="module")
def malformed_and_more(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Config, Topic, list[Row], RunSummary]:
    """A topic of good and bad records, read in several batches."""
    topic, rows = Topic.create(broker), some_events(1)
    topic.send(as_record(row) for row in rows[:120])
    bad: list[Row] = [
        {"value": "{broken", "partition": 0, "timestamp": 1_700_000_000_123},
        {"value": b"\xff\xfe", "partition": 1},
        {"value": '{"key":"a","time":1}{"key":"b","time":2}', "partition": 1},
        {"value": '{"key":"","time":1}', "partition": 1},
        {"key": "user-1", "value": None, "partition": 1},
    ]
    topic.send(bad)
    pretty = {"value": json.dumps(event("user-3", 10, 5), indent=2).replace("\n", "\r\n")}
    topic.send([pretty, *(as_record(row) for row in rows[120:])])
    config = config_of(tmp_path_factory.mktemp("lake"), topic, most=90)
    return config, topic, [*rows, event("user-3", 10, 5)], run(spark, config, once=True)


def test_sessions_equal_an_independent_computation(
    spark: SparkSession, malformed_and_more: tuple[Config, Topic, list[Row], RunSummary]
) -> None:
    config, _, rows, summary = malformed_and_more
    assert sessions(spark, config) == expected_sessions(rows)
    assert summary.batches >= 3, "max_offsets_per_batch was passed over"
    assert {name: summary.counts[name] for name in ("input", "accepted", "dead", "corrections")} == {
        "input": len(rows) + 5,
        "accepted": len(rows),
        "dead": 5,
        "corrections": 0,
    }


def test_dead_letters_name_partition_offset_and_time(
    spark: SparkSession, malformed_and_more: tuple[Config, Topic, list[Row], RunSummary]
) -> None:
    config, topic, _, _ = malformed_and_more
    dead = table(spark, config, schemas.DEAD_LETTERS).select("reason", "raw", "source").collect()
    reasons = {row["reason"].partition(":")[0]: row["raw"] for row in dead}
    assert reasons == {
        "bad JSON": reasons["bad JSON"],
        "empty key": '{"key":"","time":1}',
        "null value without the headers of a tombstone": None,
    }
    raws = sorted(row["raw"] for row in dead if row["reason"].startswith("bad JSON"))
    assert raws == ['{"key":"a","time":1}{"key":"b","time":2}', "{broken", "\ufffd\ufffd"]
    broken = next(row["source"] for row in dead if row["raw"] == "{broken")
    place, _, time = broken.partition("@")
    name, partition, offset = place.split("/")
    assert (name, partition, time) == (topic.name, "0", "2023-11-14T22:13:20.123Z")
    assert int(offset) > 0


def closed(config: Config) -> Config:
    """Return the config with a broker that does not answer."""
    servers = f"127.0.0.1:{free_port()}"
    return config.model_copy(update={"source": config.source.model_copy(update={"bootstrap_servers": servers})})


def archiving(config: Config) -> Config:
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"archive": True})})


def tombstone(key: str, start_us: int, revision: int, **more: str) -> Row:
    headers = {"sessionlake.key": key, "sessionlake.start": str(start_us), "sessionlake.revision": str(revision)}
    return {"key": key, "value": None, "headers": list({**headers, **more}.items())}


@pytest.mark.slow
def test_tombstones_with_headers_are_corrections(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, rows = Topic.create(broker), some_events(2, count=60)
    topic.send(as_record(row) for row in rows)
    config = archiving(config_of(tmp_path, topic, source="tombstones = true"))
    run(spark, config, once=True)
    live = read_sessions(spark, config).orderBy("session_key", "session_start")
    first, second, third, *_ = live.select("session_key", F.unix_micros("session_start"), "revision").collect()
    gone = tombstone(first[0], first[1], first[2], **{"sessionlake.correction": "c-1"})
    incomplete: Row = {"value": None, "headers": [("sessionlake.key", b"user-1")]}
    other: Row = {"value": None, "headers": [("theirs", b"x")]}
    beyond: Row = {"value": None, "headers": [("sessionlake.key", b"u"), ("sessionlake.start", b"253402300800000000")]}
    topic.send([gone, gone, tombstone(second[0], second[1], second[2] + 9), incomplete, beyond, other])
    where = f"session_key = '{third[0]}' and session_start = timestamp_micros({third[1]})"
    assert expire(spark, config, where=where, to_topic=True).counts["expired"] == 1
    summary = run(spark, config, once=True)
    removed = [(row[0], row[1]) for row in (first, third)]
    kept = [row for row in expected_sessions(rows) if (row[0], row[1] * 1_000_000) not in removed]
    assert sessions(spark, config) == kept
    assert counts(summary) == {
        "input": 1,
        "dead": 1,
        "corrections": 6,
        "applied": 2,
        "stale": 2,
        "malformed": 2,
        "deletes": 2,
    }
    dead = table(spark, config, schemas.DEAD_LETTERS).select("reason", "kind", "source").collect()
    assert sorted((row["reason"], row["kind"]) for row in dead) == [
        ("malformed correction", "tombstone"),
        ("malformed correction", "tombstone"),
        ("null value without the headers of a tombstone", "event"),
        ("stale", "replace"),
        ("stale", "replace"),
    ]
    assert sum(row["source"].startswith(f"c-1@{topic.name}/") for row in dead) == 1
    # What the archive says is what there is, without the sessions that the topic's tombstones removed.
    # Jobs that read tables only need no broker.
    offline = closed(config)
    report = backfill(spark, offline, from_us=0, to_us=2 * T0 * 1_000_000)
    assert (report.counts["sessions"], report.counts["corrections"]) == (len(kept), 0)
    assert run_quality(spark, offline, only=["sessions"], dry_run=True).counts["failed_critical"] == 0


@pytest.mark.slow
def test_backfill_of_a_topic_needs_the_archive(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = Topic.create(broker)
    config = config_of(tmp_path, topic)
    for index, some in enumerate((config, archiving(config))):
        topic.send([as_record(event("a", index * 86_400, 1))])
        run(spark, some, once=True)
    day = [(T0 + index * 86_400 - 1000) * 1_000_000 for index in range(3)]
    with pytest.raises(JobError, match="'kafka' can't be read again, and batch 0 was not archived"):
        backfill(spark, config, from_us=day[0], to_us=day[1], dry_run=True)


@pytest.mark.slow
def test_whole_rows_have_records_that_the_topic_has_lost(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Under the record's key, which the old pipeline did not read, and without its `where`."""
    topic, rows = Topic.create(broker, 1), some_events(7, 60)
    path = pipeline(tmp_path, topic)
    plain = path.read_text()
    kept = plain.replace("[pipeline]", '[pipeline]\narchive = "all"')
    path.write_text(kept.replace("[event]", '[event]\nwhere = "v > 50"'))
    topic.send([{**as_record(row), "key": f"other-{row['v'] % 3}"} for row in rows])
    before = run(spark, load_config(path), once=True).counts
    assert before["filtered"] > 0
    topic.forget(60)
    path.write_text(kept.replace('key = "key"', 'key = "_key"'))
    summary, _ = rebuild(spark, path, "new", from_archive=True)
    assert (summary.counts["input"], summary.counts["accepted"]) == (60, 60)
    new = load_config(path)
    new = new.model_copy(update={"pipeline": new.pipeline.model_copy(update={"warehouse": str(tmp_path / "new")})})
    assert sessions(spark, new) == expected_sessions([{**row, "key": f"other-{row['v'] % 3}"} for row in rows])


AVRO = (
    '{"type": "record", "name": "Click", "fields": [{"name": "v", "type": "long"}, {"name": "page", "type": "string"}]}'
)


def avro(v: int, page: str) -> bytes:
    """Encode a Click by the specification, apart from any library."""

    def zigzag(number: int) -> bytes:
        number, out = number * 2 if number >= 0 else -number * 2 - 1, []
        while number > 127:
            out.append(number % 128 + 128)
            number //= 128
        return bytes([*out, number])

    return zigzag(v) + zigzag(len(page.encode())) + page.encode()


@pytest.mark.slow
def test_avro_values_with_the_records_own_key_and_time(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, rows = Topic.create(broker), some_events(3, count=40)
    schema_id = b"\x00\x00\x00\x00\x07"
    (tmp_path / "click.avsc").write_text(AVRO)
    topic.send(
        {"key": row["key"], "value": schema_id + avro(row["v"], "/ä"), "timestamp": row["time"] * 1000} for row in rows
    )
    # The last one says that a text of 2 GB follows.
    wrong = [avro(1, "/no-header")[:1] + b"\xff", schema_id + b"\x02\x80", schema_id + b"\x02\xee\xff\xff\xff\x0f"]
    topic.send({"key": "user-1", "value": value, "timestamp": T0 * 1000, "partition": 0} for value in wrong)
    config = config_of(
        tmp_path,
        topic,
        source='avro_schema = "click.avsc"\nconfluent_header = true',
        format="avro",
        key="_key",
        time="_timestamp",
        most=15,
    )
    positions = {"first": "first_position()", "last": "last_position()"}
    config = config.model_copy(
        update={"section": config.section.model_copy(update={"aggregates": {**config.aggregates, **positions}})}
    )
    summary = run(spark, config, once=True)
    none = {"upserts": 0, "deletes": 0}  # of several batches, which merge sessions
    assert counts(summary) | none == {"input": 43, "accepted": 40, "dead": 3, **none}
    assert sessions(spark, config) == expected_sessions(rows)
    dead = table(spark, config, schemas.DEAD_LETTERS).select("reason", "raw", "key").collect()
    assert {row["key"] for row in dead} == {"user-1"}
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    found = reader.option("subscribe", topic.name).load().collect()
    read = [message for message in found if bytes(message.value) not in wrong]
    times = [F.unix_seconds(name).alias(name) for name in ("session_start", "session_end")]
    for row in read_sessions(spark, config).select("session_key", *times, "first", "last").collect():
        places = [
            message.partition * 2**40 + message.offset
            for message in read
            if message.key.decode() == row["session_key"]
            and row["session_start"] <= message.timestamp.timestamp() <= row["session_end"]
        ]
        assert (row["first"], row["last"]) == (min(places), max(places))
    assert all(row["reason"].startswith("bad Avro") for row in dead)
    assert sorted(row["raw"] for row in dead) == sorted(base64.b64encode(value).decode() for value in wrong)


def test_a_compacted_topic_is_warned_of(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for policy, warned in (("compact", True), ("delete", False)):
        caplog.clear()
        topic = Topic.create(broker, cleanup_policy=policy)
        KafkaSource(spark, config_of(tmp_path, topic)).check()
        assert ("is compacted" in caplog.text) == warned


def test_what_a_user_gets_wrong_is_one_line(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = Topic.create(broker)
    config = config_of(tmp_path, topic)
    with pytest.raises(SourceError, match=r"source\.topic: .* has no records.*declare each in \[source\.types\]"):
        run(spark, config, once=True)
    topic.send([{"value": '{"key": "a", "at": 1, "v": 2}'}])
    with pytest.raises(
        ConfigError,
        match=r"^event\.time: 'time' is no column of .*; write one of key, at, v, _key, _timestamp, _partition, ",
    ):
        run(spark, config, once=True)
    unknown = config.model_copy(
        update={"source": config.source.model_copy(update={"topic": "nowhere", "tombstones": True})}
    )
    with pytest.raises(SourceError, match=r"source\.topic: 'nowhere' does not exist on .*; create it or correct"):
        run(spark, unknown, once=True)
    with pytest.raises(SourceError, match=r"source\.topic: 'nowhere' does not exist on .*; create it or correct"):
        expire(spark, unknown, where="true", to_topic=True)
    silent = closed(config)
    with pytest.raises(
        UnreachableError, match=rf"'{silent.source.bootstrap_servers}' does not answer .*Connection refused"
    ):
        run(spark, silent, once=True)


@pytest.mark.slow
def test_lost_offsets_are_told_in_one_line(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, rows = Topic.create(broker, partitions=1), some_events(4, count=20)
    topic.send(as_record(row) for row in rows[:10])
    config = config_of(tmp_path, topic)
    run(spark, config, once=True)
    topic.send(as_record(row) for row in rows[10:])
    topic.forget(before=15)
    with pytest.raises(SourceError, match=r"source\.topic: records .* are gone from Kafka .* failOnDataLoss = false"):
        run(spark, config, once=True)
    forgiving = config_of(tmp_path, topic, options="failOnDataLoss = false")
    assert run(spark, forgiving, once=True).counts["input"] == 5
    assert sessions(spark, config) == expected_sessions([*rows[:10], *rows[15:]])
