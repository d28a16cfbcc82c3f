"""Windows by count of a real topic: numbered by its partitions and offsets, and each sent once, though the driver is killed."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import load_config
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.operators.counts.count_support import changes, count_sections
from tests.sources.kafka_support import Topic

SIZE = 4
PARTITION = 1 << 40
OF_KEY = {"a": 0, "b": 1, "c": 0, "d": 1}
Message = tuple[str, int, int]
"""Key, partition, value."""


def some_messages(seed: int, count: int) -> list[Message]:
    """Return messages of four keys, each of which has one partition."""
    rng = random.Random(seed)
    return [(key := rng.choice("aaabcd"), OF_KEY[key], rng.randrange(-9, 10)) for _ in range(count)]


def send(topic: Topic, messages: list[Message]) -> None:
    """Produce messages with records between them that are none, so that their numbers are not their offsets."""
    records: list[dict[str, Any]] = []
    for number, (key, partition, value) in enumerate(messages):
        if number % 7 == 3:
            records.append({"value": "{broken" if number % 2 else '{"key": null}', "partition": partition})
        text = json.dumps({"key": key, "time_us": 1_000_000 + number, "v": value})
        records.append({"key": key, "value": text, "partition": partition})
    topic.send(records)


def by_partition(messages: list[Message]) -> list[tuple[Any, ...]]:
    """Return what full windows of each partition's messages have of each key."""
    found = []
    for partition in (0, 1):
        own = [(key, value) for key, of, value in messages if of == partition]
        for first in range(0, len(own) - SIZE + 1, SIZE):
            of_key: dict[str, list[int]] = defaultdict(list)
            for key, value in own[first : first + SIZE]:
                of_key[key].append(value)
            start = partition * PARTITION + first + 1
            found += [(key, start, start + SIZE - 1, len(some), sum(some)) for key, some in of_key.items()]
    return sorted(found)


def by_key(messages: list[Message]) -> list[tuple[Any, ...]]:
    """Return the full windows of each key's messages, by their order."""
    found = []
    for key in OF_KEY:
        own = [value for of, _, value in messages if of == key]
        whole = range(len(own) // SIZE)
        found += [(key, n, SIZE, sum(own[n * SIZE : (n + 1) * SIZE])) for n in whole]
    return sorted(found)


def config_file(root: Path, topic: Topic, per: str) -> Path:
    source = {"kind": "kafka", "bootstrap_servers": topic.broker.bootstrap_servers, "topic": topic.name}
    sections = count_sections(
        source={**source, "format": "json", "max_offsets_per_batch": 25}, per=per, size=SIZE, emit={"early": "off"}
    )
    path = root / "counts.toml"
    path.write_text(tomli_w.dumps(sections))
    return path


@pytest.mark.slow
def test_of_each_partition_with_the_driver_killed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, messages = Topic.create(broker), some_messages(1, 90)
    send(topic, messages[:60])
    path = config_file(tmp_path, topic, "partition")
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(path), "--once"]
    env = {**os.environ, "SESSIONLAKE_KILL_AT": "before_changelog:2"}
    killed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    send(topic, messages[60:])
    config = load_config(path)
    run(spark, config, once=True)
    rows = [row for row in changes(config).to_pylist() if row["op"] == "upsert"]
    names = ("window_key", "window_start", "window_end", "event_count", "total")
    assert sorted(tuple(row[name] for name in names) for row in rows) == by_partition(messages)
    assert {row["trigger"] for row in rows} == {"full"}
    assert len({row["batch_id"] for row in rows}) > 2
    *_, last = Tables.of(spark, config)["window_changelog"].commits()
    accepted = [sum(of == partition for _, of, _ in messages) for partition in (0, 1)]
    assert last.metadata["state"]["positions"] == {"events": {"0": accepted[0], "1": accepted[1]}}


@pytest.mark.slow
def test_of_each_key_with_a_crash_in_the_commit(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, messages = Topic.create(broker), some_messages(2, 70)
    send(topic, messages[:40])
    config = load_config(config_file(tmp_path, topic, "key"))
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match=CrashError.__name__):
        run(spark, config, once=True)
    # More arrives before the rerun, which must not take it into the batch that failed.
    send(topic, messages[40:])
    run(spark, config, once=True)
    rows = [row for row in changes(config).to_pylist() if row["op"] == "upsert"]
    first: dict[str, int] = {}
    for row in rows:
        first[row["window_key"]] = min(row["window_start"], first.get(row["window_key"], row["window_start"]))
    places = [(row["window_key"], *divmod(row["window_start"] - first[row["window_key"]], SIZE)) for row in rows]
    assert {rest for _, _, rest in places} == {0}
    found = [(key, n, row["event_count"], row["total"]) for (key, n, _), row in zip(places, rows, strict=True)]
    assert sorted(found) == by_key(messages)
