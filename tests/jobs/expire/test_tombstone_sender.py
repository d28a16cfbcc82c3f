"""A topic is told of the rows that its table's cleanups removed: by a real broker, and after kill -9."""

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.compact import compact, trim
from sessionlake.jobs.expire.job import Pace, expire
from sessionlake.jobs.expire.tombstone_sender import APP, TombstoneSender
from sessionlake.stream import run as stream_run
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.sources.kafka_support import Topic, every_message

pytestmark = pytest.mark.slow
HOUR = 3_600_000_000


def table_file(root: Path, topic: Topic, **ttl: Any) -> Path:
    """Write the config of a table by the records' own keys."""
    servers = topic.broker.bootstrap_servers
    kafka = {"kind": "kafka", "bootstrap_servers": servers, "topic": topic.name, "format": "json", "tombstones": True}
    path = root / "table.toml"
    sections = {
        "pipeline": {"name": "t", "warehouse": "warehouse", "shards": 2},
        "source": {**kafka, "types": {"v": "long"}},
        "event": {"key": "_key", "time": "_timestamp"},
        "table": {"columns": ["v"]},
        "ttl": {"pattern": "index", "ttl": "1 hour", "since": "write", "topic_tombstones": True, **ttl},
        "compact": {"safety": "0 seconds"},
    }
    path.write_text(tomli_w.dumps(sections))
    return path


def record(key: str, v: int, partition: int) -> dict[str, Any]:
    return {"key": key, "value": b'{"v": %d}' % v, "partition": partition}


def tombstones(topic: Topic) -> list[tuple[int, str, dict[str, str]]]:
    """Return the partition, key and headers of the records of a topic that have no value."""
    found = []
    for message in every_message(topic.broker, topic.name):
        if message.value() is None:
            headers = {name.removeprefix("sessionlake."): value.decode() for name, value in message.headers()}
            found.append((message.partition(), message.key().decode(), headers))
    return sorted(found, key=repr)


class Stream:
    """Runs of a table's stream, each by a clock of its own."""

    def __init__(self, spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spark, self.config, self.shift = spark, config, 0
        clock_of = stream_run.clock_of
        monkeypatch.setattr(stream_run, "clock_of", lambda offsets: clock_of(offsets) + self.shift)

    def run(self, once_removed: Callable[[], None] = lambda: None) -> dict[str, int]:
        """Run once, as the command does, with a call where rows were removed; return what its batches counted."""
        counts: dict[str, int] = {}
        told = TombstoneSender(self.spark, self.config, Pace(sleep=lambda _: None))

        def committed(batch: BatchCommit) -> None:
            if batch.counts.get("deleted_by_ttl"):
                once_removed()
            told.committed(batch)
            told.wake()
            for name, value in batch.counts.items():
                counts[name] = counts.get(name, 0) + value

        run(self.spark, self.config, once=True, on_commit=committed)
        told.finish()
        return counts

    def rows(self) -> dict[str, int]:
        return {row["table_key"]: row["v"] for row in merged_rows(Tables.of(self.spark, self.config)).collect()}


def test_what_a_cleanup_removed_is_sent_once_and_removes_nothing_newer(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic.create(broker, partitions=3)
    stream = Stream(spark, load_config(table_file(tmp_path, topic, max_tombstones_per_second=1)), monkeypatch)
    topic.send([record(key, n, 2) for n, key in enumerate("abc")])
    topic.send([record(f"k{n:02d}", n, n % 3) for n in range(25)])
    stream.run()
    assert len(stream.rows()) == 28
    assert tombstones(topic) == []
    tables, trimmed = Tables.of(spark, stream.config), []
    monkeypatch.setattr(trim, "fold_point", lambda *_: 9)

    def once_removed() -> None:
        trimmed.append(trim.trim_point(tables, stream.config, 1 << 60))
        # An update of b before it could be told of: nothing is sent until that is read.
        topic.send([record("b", 4, 2)])

    stream.shift = 2 * HOUR
    topic.send([record("c", 3, 2)])
    counts = stream.run(once_removed)
    assert counts["deleted_by_ttl"] == 27
    assert stream.rows() == {"b": 4, "c": 3}
    sent = tombstones(topic)
    # In three parts, of ten or so, all in the partitions of their records.
    assert [(place, key) for place, key, _ in sent if key == "a"] == [(2, "a")]
    assert sorted(key for _, key, _ in sent) == ["a", *(f"k{n:02d}" for n in range(25))]
    assert all(place == int(key[1:]) % 3 for place, key, _ in sent if key != "a")
    assert next(headers for _, key, headers in sent if key == "a") == {
        "key": "a",
        "revision": "2",
        "offset": "0",
        "cause": "ttl",
    }
    assert tables["table_changelog"].app_version(APP) == 3
    assert [*trimmed, trim.trim_point(tables, stream.config, 1 << 60)] == [1, 9], "changes go before they are told of"

    # One that was on its way when c got its second record: other readers lose that, this table does not.
    headers = [(f"sessionlake.{name}", value) for name, value in (("key", "c"), ("offset", "2"), ("cause", "ttl"))]
    topic.send([{"key": "c", "value": None, "partition": 2, "headers": headers}])
    counts = stream.run()
    # The 26 that were sent, this one, and what ends a run.
    wanted = {"input": 0, "corrections": 28, "applied": 27, "stale": 1, "dead": 0}
    assert {name: counts.get(name, 0) for name in wanted} == wanted
    assert stream.rows() == {"b": 4, "c": 3}
    assert len(tombstones(topic)) == len(sent) + 1, "what came back was sent again"


def test_driver_is_killed_between_commit_and_send_and_after_it(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic.create(broker, partitions=1)
    path = table_file(tmp_path, topic, ttl="1 us", since="event")
    stream = Stream(spark, load_config(path), monkeypatch)
    topic.send([record("a", 1, 0)])
    # Committed, and nothing sent, as by a driver that dies at that moment.
    run(spark, stream.config, once=True)
    assert (stream.rows(), tombstones(topic)) == ({}, [])
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(path), "--once"]
    env = {**os.environ, "SESSIONLAKE_KILL_AT": "topic_sent"}
    killed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [key for _, key, _ in tombstones(topic)] == ["a"]
    stream.run()
    assert [key for _, key, _ in tombstones(topic)] == ["a", "a"], "how far the topic is was not known"
    stream.run()
    stream.run()
    assert len(tombstones(topic)) == 2
    assert stream.rows() == {}


def test_the_job_sends_a_tables_tombstones_to_its_topic_and_a_killed_run_goes_on(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic.create(broker, partitions=2)
    path = table_file(tmp_path, topic)
    sections = tomllib.loads(path.read_text())
    del sections["ttl"]
    path.write_text(tomli_w.dumps({**sections, "expire": {"max_share": 1.0}}))
    stream = Stream(spark, load_config(path), monkeypatch)
    topic.send([record(key, n, n % 2) for n, key in enumerate("abcd")])
    stream.run()
    rule = ["--where", "v < 3", "--run-id", "r", "--max-per-second", "1", "--to-topic", "--no-apply"]
    command = [str(Path(sys.executable).with_name("sessionlake")), "expire", str(path), *rule]
    env = {**os.environ, "SESSIONLAKE_KILL_AT": "expire_after_topic"}
    killed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [key for _, key, _ in tombstones(topic)] == ["a", "c", "b"]
    assert tombstones(topic)[0] == (0, "a", {"key": "a", "revision": "0", "offset": "0", "cause": "expire"})
    stream.run()
    assert stream.rows() == {"d": 3}
    topic.send([record("b", 1, 1)])
    stream.run()
    for _ in range(2):  # The second trims what the first has folded.
        compact(spark, stream.config)
    assert Tables.of(spark, stream.config)["table_changelog"].read().isEmpty(), "what has changed is trimmed"
    report = expire(
        spark,
        stream.config,
        where="v < 3",
        run_id="r",
        max_per_second=1,
        to_topic=True,
        pace=Pace(sleep=lambda _: None),
    )
    assert (report.counts["matched"], report.counts["expired"]) == (3, 0), "all have changed since the run began"
    assert len(tombstones(topic)) == 3
    report = expire(spark, stream.config, where="v < 3", to_topic=True)
    assert (report.counts["expired"], report.counts["left_for_next_run"]) == (1, 0)
    stream.run()
    assert stream.rows() == {"d": 3}
    assert [(place, key) for place, key, _ in tombstones(topic)] == [(0, "a"), (0, "c"), (1, "b"), (1, "b")]
    changes_ = Tables.of(spark, stream.config)["table_changelog"].read().where("op = 'delete'")
    assert {row.cause for row in changes_.collect()} == {"tombstone"}
