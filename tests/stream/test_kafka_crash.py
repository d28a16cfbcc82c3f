"""Exactly once from a real topic: the driver dies, the broker dies, partitions are added."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.sources.kafka_support import Row, Topic, as_record, config_of, expected_sessions, pipeline, some_events
from tests.sources.sessions_support import sessions

REFUSED: Row = {"value": "{broken", "partition": 0}
WAIT_S = 120


def assert_each_event_once(spark: SparkSession, root: Path, topic: Topic, rows: list[Row], dead: int) -> None:
    config = config_of(root, topic)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    commits = [commit.metadata for commit in tables[schemas.CHANGELOG].commits()]
    assert [commit["batch_id"] for commit in commits] == list(range(len(commits)))
    assert sum(commit["counts"]["input"] for commit in commits) == len(rows) + dead
    assert tables[schemas.DEAD_LETTERS].read().count() == dead
    assert sessions(spark, config) == expected_sessions(rows)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("before_changelog", marks=pytest.mark.slow),
        pytest.param("after_dead", marks=pytest.mark.slow),
        pytest.param("after_changelog", marks=pytest.mark.slow),
    ],
)
def test_driver_fails_in_the_commit(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    topic, rows = Topic.create(broker), some_events(1, 60)
    topic.send([*(as_record(row) for row in rows), REFUSED])
    config = config_of(tmp_path, topic, most=1000)
    with crash_at(monkeypatch, point), pytest.raises(Exception, match=CrashError.__name__):
        run(spark, config, once=True)
    # More arrives before the rerun, which must not take it into the batch that failed.
    more = some_events(2, 20)
    topic.send(as_record(row) for row in more)
    run(spark, config, once=True)
    assert_each_event_once(spark, tmp_path, topic, [*rows, *more], dead=1)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["computed:2", "after_dead", "before_changelog:2", "after_changelog"])
def test_driver_is_killed(spark: SparkSession, broker: Broker, tmp_path: Path, point: str) -> None:
    topic, rows = Topic.create(broker), some_events(3, 120)
    topic.send([*(as_record(row) for row in rows[:80]), REFUSED])
    path = pipeline(tmp_path, topic, most=30)
    killed = _command(path, SESSIONLAKE_KILL_AT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    topic.send(as_record(row) for row in rows[80:])
    again = _command(path)
    assert again.returncode == 0, again.stderr
    assert_each_event_once(spark, tmp_path, topic, rows, dead=1)


def _command(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(path), "--once"]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.slow
def test_broker_is_killed_and_partitions_are_added_in_mid_stream(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, rows = Topic.create(broker, partitions=2), some_events(4, 240)
    before, after = rows[:160], rows[160:]
    topic.send(as_record(row) for row in before)
    config = config_of(tmp_path, topic, most=40)
    started, done = threading.Event(), threading.Event()
    read = 0

    def on_commit(batch: BatchCommit) -> None:
        nonlocal read
        read += batch.counts.get("input", 0)
        started.set()
        if read >= len(rows):
            done.set()

    failures: list[BaseException] = []

    def stream() -> None:
        try:
            run(spark, config, on_commit=on_commit)
        except BaseException as error:  # noqa: BLE001 (raised again in the test)
            failures.append(error)

    # Not the other way round: a broker ends with the thread that started it.
    thread = threading.Thread(target=stream)
    thread.start()
    try:
        assert started.wait(WAIT_S)
        broker.kill()
        broker.start()
        topic.widen(4)
        topic.send({**as_record(row), "partition": i % 4} for i, row in enumerate(after))
        assert done.wait(WAIT_S), failures
    finally:
        for query in spark.streams.active:
            query.stop()
        thread.join()
    assert not failures
    ends = json.loads(_last_offsets(Path(config.checkpoint)))[topic.name]
    assert sorted(ends) == ["0", "1", "2", "3"]
    assert sum(ends.values()) == len(rows)
    assert_each_event_once(spark, tmp_path, topic, rows, dead=0)


def _last_offsets(checkpoint: Path) -> str:
    """Return the line of the topic in the newest file of the offset log."""
    newest = max(
        (file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    return newest.read_text().splitlines()[2]
