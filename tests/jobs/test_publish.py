"""Sessions in a compacted topic: read back, it equals sessions_live, whatever was trimmed, deleted or killed meanwhile."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from infra.kafka.broker import Broker
from sessionlake.config.load import Config
from sessionlake.errors import JobError, PipelineStateError
from sessionlake.jobs.compact.job import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import publish
from sessionlake.jobs.publish.final import Reached, closed_us, finals
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.reading import read_sessions
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.publish_support import US, some_rows
from tests.sources.kafka_support import WAIT_S, Row, Topic, records
from tests.support import make_config, write_rows


def lake(root: Path, broker: Broker, topic: str, ttl: Row | None = None, **session: str) -> Config:
    windows = {"gap": "10 seconds", "grace": "1 hour", "retention": "2 hours", **session}
    sink = {"kafka": {"bootstrap_servers": broker.bootstrap_servers, "topic": topic}}
    # Trimmed at once, where a day's changes stay otherwise.
    expiring = {} if ttl is None else {"ttl": ttl}
    return make_config(root, session=windows, sink=sink, compact={"safety": "0 seconds"}, **expiring)


def messages(broker: Broker, topic: str) -> int:
    """Return how many records were sent to a topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    ends = (consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)[1] for number in partitions)
    count = sum(ends)
    consumer.close()
    return count


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * US + moment.microsecond


def assert_topic_is_live(spark: SparkSession, config: Config, broker: Broker, topic: str) -> None:
    times = [F.unix_micros(name).alias(name) for name in ("session_start", "session_end")]
    names = ("session_key", "session_id", "event_count", "revision", "total")
    live = [row.asDict() for row in read_sessions(spark, config).select(*names, *times).collect()]
    found: list[dict[str, Any]] = []
    for (key, start), value in records(broker, topic).items():
        assert (value["session_key"], value["session_start"]) == (key, start)
        moments = {name: micros(value[name]) for name in ("session_start", "session_end")}
        found.append({**{name: value[name] for name in names}, **moments})
    order = ("session_key", "session_start")
    assert sorted(found, key=lambda r: [r[n] for n in order]) == sorted(live, key=lambda r: [r[n] for n in order])


def trim(spark: SparkSession, config: Config) -> None:
    """Fold the changelog into the snapshot and trim it."""
    changelog = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    before = changelog[schemas.CHANGELOG].read().count()
    for _ in range(2):  # a run trims what the one before it has folded
        compact(spark, config)
    assert changelog[schemas.CHANGELOG].read().count() < before, "nothing was trimmed"


@pytest.mark.slow
def test_topic_equals_sessions_live(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"sessions-{tmp_path.name}"
    config = lake(tmp_path, broker, topic)
    for number in range(3):
        write_rows(tmp_path, f"{number}.json", some_rows(number))
    run(spark, config, once=True)
    trim(spark, config)

    # The topic is made at the first start, which has to give what was trimmed as well. It dies after that.
    with crash_at(monkeypatch, "published_all"), pytest.raises(CrashError):
        publish(spark, config, once=True)
    write_rows(tmp_path, "3.json", some_rows(3))
    run(spark, config, once=True)
    assert publish(spark, config, once=True).from_the_beginning
    assert_topic_is_live(spark, config, broker, topic)

    # Sessions merge, so that some of those published are deleted; the changelog is trimmed under the publisher.
    write_rows(tmp_path, "4.json", some_rows(4))
    run(spark, config, once=True)
    changelog = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.CHANGELOG].read()
    assert changelog.where("op = 'delete'").count(), "the test deletes nothing"
    with crash_at(monkeypatch, "published"), pytest.raises(Exception, match="CrashError"):
        publish(spark, config, once=True)
    trim(spark, config)
    again = publish(spark, config, once=True)
    assert not again.from_the_beginning
    assert_topic_is_live(spark, config, broker, topic)
    described = Topic(broker, topic).config("cleanup.policy")
    assert described == "compact"


@pytest.mark.slow
def test_what_was_not_published_yet_is_not_erased(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = f"sessions-{tmp_path.name}"
    config = lake(tmp_path, broker, topic)
    for number in range(2):
        write_rows(tmp_path, f"{number}.json", some_rows(number))
        run(spark, config, once=True)
        if number == 0:
            publish(spark, config, once=True)
    with pytest.raises(JobError, match=r"publish has not read the deletes yet; run `sessionlake publish --once`"):
        forget(spark, config, ["user-1"])
    publish(spark, config, once=True)
    assert forget(spark, config, ["user-1"]).counts["found"] == 0
    publish(spark, config, once=True)
    assert "user-1" not in {key for key, _ in records(broker, topic)}
    assert_topic_is_live(spark, config, broker, topic)

    write_rows(tmp_path, "2.json", some_rows(2))
    run(spark, config, once=True)
    for file in Path(config.pipeline.warehouse, schemas.CHANGELOG).glob("*.parquet"):
        file.unlink()
    with pytest.raises(
        PipelineStateError, match=r"publish: changes that were not read yet are gone from .*; delete '.*'"
    ):
        publish(spark, config, once=True)


@pytest.mark.slow
def test_a_final_session_is_published_once_when_it_closes(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"sessions-{tmp_path.name}"
    config = lake(tmp_path, broker, topic, emit="final", grace="10 minutes")
    sent = []
    for number in range(3):
        times = [(number * 3600 + 60 * i) * US for i in range(3)]
        rows = [{"key": f"{key}{number}", "time_us": time, "v": 1} for key, time in zip("abc", times, strict=True)]
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, config, once=True)
        if number == 1:
            with crash_at(monkeypatch, "published_final"), pytest.raises(CrashError):
                publish(spark, config, once=True)
        before = messages(broker, topic) if number else 0
        assert publish(spark, config, once=True).from_the_beginning == (number == 0)
        sent.append(messages(broker, topic) - before)
        assert_topic_is_live(spark, config, broker, topic)
    # An hour's sessions close with the next one's events; those of the first were sent by the attempt that was killed, too.
    assert sent == [0, 3, 3]
    assert messages(broker, topic) == 9
    assert publish(spark, config, once=True).batches == 0

    # Nothing changes but the watermark: what it closes is published all the same. Then one of them expires.
    run(spark, config, once=True, drain=True)
    publish(spark, config, once=True)
    assert len(records(broker, topic)) == 9
    expire(spark, config, where="session_key = 'b1'")
    run(spark, config, once=True)
    publish(spark, config, once=True)
    assert_topic_is_live(spark, config, broker, topic)
    assert len(records(broker, topic)) == 8


@pytest.mark.slow
def test_a_final_session_that_opens_again_leaves_the_topic_when_it_is_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = make_config(tmp_path, session={"gap": "10 seconds", "grace": "10 minutes", "retention": "1 hour"})
    tables, steps = Tables(spark, config.pipeline.warehouse, CHANGELOG), [Reached()]

    def published() -> list[tuple[str, int, str, int]]:
        run(spark, config, once=True)
        last = last_batch(tables)
        steps.append(Reached(last.batch_id, closed_us(config, last), last.version))
        times = [(F.unix_micros(f"session_{edge}") / US).cast("int") for edge in ("start", "end")]
        return sorted(
            tuple(row)
            for row in finals(tables, config.section, *steps[-2:])
            .select("session_key", times[0], "op", times[1])
            .collect()
        )

    def events(name: str, *rows: tuple[str, int]) -> None:
        write_rows(tmp_path, name, [{"key": key, "time_us": at * US, "v": 1} for key, at in rows])

    events("0.json", ("a", 0), ("a", 15))
    assert published() == []
    events("1.json", ("b", 615))
    assert published() == [("a", 0, "upsert", 0)]
    events("2.json", ("a", 8))  # joins the closed session to the open one, and so is accepted
    assert published() == []
    expire(spark, config, where="session_key = 'a'")
    assert published() == [("a", 0, "delete", 15)]


@pytest.mark.slow
@pytest.mark.parametrize(("emit", "sent"), [("update", [1, 4, 1]), ("final", [1, 3, 1])])
def test_an_expired_session_is_deleted_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, emit: str, sent: list[int]
) -> None:
    topic = f"sessions-{tmp_path.name}"
    ttl = {"pattern": "scan", "ttl": "1 minute", "clock": "stream", "every": "1 us"}
    config = lake(tmp_path, broker, topic, ttl, emit=emit, grace="0 seconds")
    before = 0
    # The third batch removes what is older than a minute at its watermark, second 200; events go on.
    for number, rows in enumerate([[("a", 0), ("b", 0), ("c", 30)], [("z", 200)], [("z", 205)], [("z", 400)]]):
        write_rows(tmp_path, f"{number}.json", [{"key": key, "time_us": at * US, "v": 1} for key, at in rows])
        run(spark, config, once=True)
        publish(spark, config, once=True)
        assert_topic_is_live(spark, config, broker, topic)
        now = messages(broker, topic)
        # The first start may send the last batch twice.
        assert number == 0 or now - before == sent[number - 1]
        before = now
    assert {key for key, _ in records(broker, topic)} == {"z"}
    # Nothing of a key whose session has expired is left to be forgotten but rows: no tombstone is asked for, nor sent.
    assert forget(spark, config, ["a"]).counts["found"] == 0
    for table, key in ((schemas.CHANGELOG, "session_key"), (schemas.TOPIC_TOMBSTONES, "key")):
        keys = {row[0] for row in Tables.of(spark, config)[table].read().select(key).collect()}
        assert keys & {"a", "b"} == {"b"}
    publish(spark, config, once=True)
    assert messages(broker, topic) == before
    run(spark, config, once=True)
    assert read_status(config).reconciles
