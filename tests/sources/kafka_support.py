"""Topics of a real broker, pipelines that read them, and sessions computed apart from the engine."""

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, load_config

Row = dict[str, Any]
WAIT_S = 30
T0 = 1_700_000_000
GAP_S = 600

CONFIG = """\
[pipeline]
name = "kafka"
warehouse = "warehouse"
shards = 2
trigger = "0 seconds"

[source]
kind = "kafka"
bootstrap_servers = "{servers}"
topic = "{topic}"
format = "{format}"
max_offsets_per_batch = {most}
{source}

[source.options]
{options}

[event]
key = "{key}"
time = "{time}"
time_unit = "s"

[session]
gap = "10 minutes"
grace = "30 days"
retention = "60 days"

[aggregates]
total = "sum(v)"
"""


@dataclass(frozen=True)
class Topic:
    """A topic of a test's own."""

    broker: Broker
    name: str

    @classmethod
    def create(cls, broker: Broker, partitions: int = 2, *, name: str | None = None, **config: str) -> "Topic":
        topic = cls(broker, name or f"t-{uuid.uuid4().hex[:12]}")
        settings = {name.replace("_", "."): value for name, value in config.items()}
        admin = topic.admin()  # held, for its futures end with it
        admin.create_topics([NewTopic(topic.name, partitions, 1, config=settings)])[topic.name].result(WAIT_S)
        return topic

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})

    def config(self, name: str) -> str:
        admin = self.admin()
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        return str(admin.describe_configs([resource])[resource].result(WAIT_S)[name].value)

    def widen(self, partitions: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(WAIT_S)
        while len(admin.list_topics(self.name, timeout=WAIT_S).topics[self.name].partitions) < partitions:
            pass

    def forget(self, before: int) -> None:
        """Remove the records of partition 0 below an offset, as retention does."""
        admin = self.admin()
        there = TopicPartition(self.name, 0, before)
        admin.delete_records([there])[there].result(WAIT_S)

    def send(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Produce records (value, and optionally key, headers, partition, timestamp); return once all are stored."""
        failures: list[Any] = []
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 5, "log_level": 0})
        for record in records:
            producer.produce(self.name, on_delivery=lambda error, _: error and failures.append(error), **record)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert not failures


def pipeline(
    root: Path, topic: Topic, *, source: str = "", options: str = "", most: int = 1_000_000, **names: str
) -> Path:
    """Write a config and return its path."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "kafka.toml"
    named = {"key": "key", "time": "time", "format": "json"} | names
    servers = topic.broker.bootstrap_servers
    path.write_text(
        CONFIG.format(servers=servers, topic=topic.name, source=source, options=options, most=most, **named)
    )
    return path


def config_of(root: Path, topic: Topic, **settings: Any) -> Config:
    return load_config(pipeline(root, topic, **settings))


def event(key: str, time: int, v: int) -> Row:
    return {"key": key, "time": T0 + time, "v": v}


def some_events(seed: int, count: int = 200) -> list[Row]:
    """Return events of twelve keys over eight hours, in no order."""
    rng = random.Random(seed)
    return [event(f"user-{rng.randrange(12)}", rng.randrange(8 * 3600), rng.randrange(100)) for _ in range(count)]


def as_record(row: Row) -> Row:
    return {"key": row["key"], "value": json.dumps(row)}


def expected_sessions(rows: Iterable[Row]) -> list[tuple[str, int, int, int, int]]:
    """Return (key, start, end, events, total of v) of all sessions, by sorting all events at once."""
    found: list[tuple[str, int, int, int, int]] = []
    for key, of_key in groupby(sorted(rows, key=lambda r: (r["key"], r["time"])), key=lambda r: r["key"]):
        current: list[Row] = []
        for row in of_key:
            if current and row["time"] - current[-1]["time"] > GAP_S:
                found.append(_session(key, current))
                current = []
            current.append(row)
        found.append(_session(key, current))
    return found


def _session(key: str, rows: list[Row]) -> tuple[str, int, int, int, int]:
    return key, rows[0]["time"], rows[-1]["time"], len(rows), sum(r["v"] for r in rows)


def every_message(broker: Broker, topic: str) -> Iterator[Message]:
    """Yield all that a topic has by now, partition by partition."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer({**settings, "log_level": 0})
    for partition in consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
        consumer.assign([TopicPartition(topic, partition, 0)])
        read = 0
        while read < end:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            read = message.offset() + 1
            yield message
    consumer.close()


def records(broker: Broker, topic: str, of: str = "session") -> dict[tuple[Any, ...], Row]:
    """Return what a reader of the whole topic is left with: the last value of each key, none where that is null.

    A key is that of a row of `of`: session, window or join.
    """
    found: dict[tuple[Any, ...], Row] = {}
    place = ("left_position", "right_position") if of == "join" else (f"{of}_start",)
    for message in every_message(broker, topic):
        named = json.loads(message.key())
        key = tuple(named[name] for name in (f"{of}_key", *place))
        found.pop(key, None)
        if message.value() is not None:
            found[key] = json.loads(message.value())
    return found
