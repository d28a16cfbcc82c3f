"""Back-pressure: a stream waits for the topic, says so, loses nothing, goes on; and ends at once where it is told to while it waits."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.followers.positions import followers_of
from sessionlake.jobs.publish import publish
from sessionlake.reading import read_sessions
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.jobs.publish_support import some_rows
from tests.support import write_config, write_rows

WAIT_S = 300
pytestmark = pytest.mark.slow


def config_file(root: Path, broker: Broker, **sink: Any) -> Path:
    kafka = {"bootstrap_servers": broker.bootstrap_servers, "topic": f"sessions-{root.name}", **sink}
    session = {"gap": "10 seconds", "grace": "1 hour", "retention": "2 hours"}
    return write_config(root, session=session, sink={"kafka": kafka}, pipeline={"trigger": "100 ms"})


def write_files(root: Path, *numbers: int) -> None:
    for number in numbers:
        write_rows(root, f"{number}.json", some_rows(number))


def lag(config: Config) -> int | None:
    """Return by how many batches the topic is behind."""
    (topic,) = followers_of(config)
    return topic.behind


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_the_lag_is_counted_in_batches(spark: SparkSession, broker: Broker, tmp_path: Path, emit: str) -> None:
    config = load_config(config_file(tmp_path, broker, emit=emit))
    write_files(tmp_path, 0)
    run(spark, config, once=True)
    assert lag(config) == 1
    publish(spark, config, once=True)
    assert lag(config) == 0
    write_files(tmp_path, 1, 2, 3)
    run(spark, config, once=True)
    assert lag(config) == 3
    publish(spark, config, once=True)
    assert lag(config) == 0


def wait_for(lines: IO[str], text: str) -> None:
    """Read lines up to one with a text; the test's own limit of time ends what never says it."""
    assert any(text in line for line in lines), f"ended without {text!r}"


@pytest.mark.timeout(WAIT_S * 2)
def test_a_stream_waits_for_the_topic_and_goes_on(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    file = config_file(tmp_path, broker, max_lag=2)
    config = load_config(file)
    write_files(tmp_path, *range(5))
    command = [sys.executable, "-m", "sessionlake", "run", str(file)]
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        wait_for(
            stream.stdout, "sink.kafka is 3 batches behind, more than 2; the stream waits for it, and loses nothing"
        )
        # Two may be behind, and a third is what it would take to be more.
        assert last_batch(Tables.of(spark, config)).batch_id == 2
        publish(spark, config, once=True)
        wait_for(stream.stdout, "sink.kafka has caught up; the stream goes on")
        wait_for(stream.stdout, "batch    4")
        write_files(tmp_path, 5, 6, 7)
        wait_for(stream.stdout, "the stream waits")
        stream.send_signal(signal.SIGINT)
        wait_for(stream.stdout, "stopped; nothing is lost")
        assert stream.wait(WAIT_S) == 0
    run(spark, config, once=True)
    assert last_batch(Tables.of(spark, config)).batch_id == 7
    assert sum(row.event_count for row in read_sessions(spark, config).collect()) == 8 * len(some_rows(0))
