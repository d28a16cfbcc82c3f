"""The topic `sink.kafka.errors` gets each late event and each dead letter of committed batches, at least once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from infra.kafka.broker import Broker
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError
from sessionlake.jobs.publish import Step, errors, publish
from sessionlake.jobs.publish.errors import ErrorsTopic
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.sources.kafka_support import WAIT_S, Topic, every_message
from tests.support import make_config

Record = tuple[str | None, dict[str, Any]]


def lake(root: Path, servers: str, topic: str, **kafka: str) -> Config:
    sink = {"kafka": {"bootstrap_servers": servers, "topic": topic, **kafka}}
    session = {"gap": "10 seconds", "grace": "10 seconds", "retention": "1 hour"}
    return make_config(root, session=session, sink=sink)


def errors_topic(spark: SparkSession, config: Config) -> ErrorsTopic:
    assert config.sink.kafka is not None
    return ErrorsTopic(Tables.of(spark, config), config, config.sink.kafka, config.sink.kafka.errors or "")


def ran(spark: SparkSession, config: Config, name: str, *lines: str | tuple[str, int]) -> None:
    """Run a batch of events, given by key and second, and of other lines."""
    rows = [
        line if isinstance(line, str) else json.dumps({"key": line[0], "time_us": line[1] * 1_000_000, "v": 1})
        for line in lines
    ]
    Path(config.source.path or "", name).write_text("\n".join(rows) + "\n")
    run(spark, config, once=True)


def sent(broker: Broker, topic: str) -> list[Record]:
    """Return all records of a topic: key and value."""
    return [
        (None if message.key() is None else message.key().decode(), json.loads(message.value()))
        for message in every_message(broker, topic)
    ]


def rows_of(spark: SparkSession, config: Config) -> Counter[str]:
    """Return the rows of both tables in the form in which `counted` returns records."""
    found = Counter[str]()
    for name in (schemas.LATE_EVENTS, schemas.DEAD_LETTERS):
        table = Tables.of(spark, config)[name].read().drop("commit_id")
        times = [name for name, kind in table.dtypes if kind == "timestamp"]
        seconds = {name: F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX") for name in times}
        for row in table.withColumns(seconds).collect():
            found[json.dumps([row["key"], {"table_name": name, **row.asDict(recursive=True)}], sort_keys=True)] += 1
    return found


def counted(records: list[Record]) -> Counter[str]:
    return Counter(json.dumps(record, sort_keys=True) for record in records)


@pytest.mark.slow
def test_each_late_event_and_each_dead_letter_is_sent(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic.create(broker).name
    config = lake(tmp_path, broker.bootstrap_servers, f"{topic}-results", errors=topic)
    ran(spark, config, "a", ("ann", 5000), ("bob", 100), "{broken", '{"key": null, "time_us": 1}')
    step = errors_topic(spark, config).step
    with crash_at(monkeypatch, "errors_read"), pytest.raises(CrashError):
        step()
    assert sent(broker, topic) == []
    with crash_at(monkeypatch, "errors_sent"), pytest.raises(CrashError):
        step()
    steps: list[tuple[str, Step]] = []
    publish(spark, config, once=True, on_step=lambda name, step: steps.append((name, step)))
    first = counted(sent(broker, topic))
    # Killed after they were sent, and before that was known: all came twice.
    assert first == Counter({row: 2 * count for row, count in rows_of(spark, config).items()})
    assert steps == [("errors", Step(0, 2))]
    assert publish(spark, config, once=True).steps == 0

    ran(spark, config, "b", ("ann", 4000), ("cid", 4100), ("cid", 6000), '{"key": "x"}')
    publish(spark, config, once=True)
    assert counted(sent(broker, topic)) - first == rows_of(spark, config) - first
    tables = Counter(value["table_name"] for _, value in sent(broker, topic))
    assert tables == {"dead_letters": 5, "late_events": 2}

    # A topic that was made again gets all of them.
    admin = AdminClient(
        {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    )  # held, for its futures end with it
    admin.delete_topics([topic])[topic].result(WAIT_S)
    publish(spark, config, once=True)
    assert counted(sent(broker, topic)) == rows_of(spark, config)


@pytest.mark.slow
def test_a_compacted_topic_is_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = Topic.create(broker, cleanup_policy="compact").name
    config = lake(tmp_path, broker.bootstrap_servers, f"{topic}-results", errors=topic)
    ran(spark, config, "a", ("ann", 5000), "{broken")
    with pytest.raises(ConfigError, match=r"^sink.kafka.errors: '.*' is compacted, and a dead letter may have no key"):
        publish(spark, config, once=True)


@pytest.mark.slow
def test_rows_of_a_batch_that_is_not_committed_wait(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic.create(broker).name
    config = lake(tmp_path, broker.bootstrap_servers, f"{topic}-results", errors=topic)
    ran(spark, config, "a", ("ann", 5000))
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match="CrashError"):
        ran(spark, config, "b", ("ann", 6000), "{broken")
    assert sum(rows_of(spark, config).values()) == 1, "its dead letter is in the table already"
    step = errors_topic(spark, config).step
    assert step() == Step(0, 0)
    assert sent(broker, topic) == []
    run(spark, config, once=True)
    assert step() == Step(1, 1)
    assert counted(sent(broker, topic)) == rows_of(spark, config)


@pytest.mark.slow
def test_a_row_that_kafka_would_refuse_is_sent_without_its_text(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic.create(broker).name
    config = lake(tmp_path, broker.bootstrap_servers, f"{topic}-results", errors=topic)
    ran(spark, config, "a", ("ann", 5000), "{" + "x" * 2_000_000, "{broken")
    monkeypatch.setattr(errors, "MOST_BYTES", 1_000)
    publish(spark, config, once=True)
    short, whole = sorted((value for _, value in sent(broker, topic)), key=lambda value: "raw" in value)
    assert short.pop("reason").startswith("bad JSON")
    assert short.pop("source").endswith("/a:2")
    assert short == {"table_name": "dead_letters", "cut": True, "kind": "event", "event_time": None, "batch_id": 0}
    assert whole["raw"] == "{broken"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("results", "sink.kafka.errors: 'results' is the topic of the results; write another one"),
        ("no topic", "sink.kafka.errors: 'no topic' is no topic; write one name of letters"),
    ],
)
def test_a_topic_that_can_not_be_is_told(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        lake(tmp_path, "localhost:1", "results", errors=name)
    assert str(error.value).startswith(told)
