"""A config with a topic and a table: one process serves both while it runs, and each alone if it is asked to."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import deltalake
import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import load_config
from sessionlake.jobs.publish import publish
from sessionlake.reading import read_sessions
from sessionlake.stream.run import run
from tests.jobs.publish_support import some_rows
from tests.sources.kafka_support import records
from tests.support import write_config, write_rows

WAIT_S = 300
pytestmark = [pytest.mark.slow, pytest.mark.timeout(WAIT_S * 2)]


def wait_for(lines: IO[str], text: str) -> None:
    """Read lines up to one with a text; the test's own limit of time ends what never says it."""
    assert any(text in line for line in lines), f"ended without {text!r}"


def in_table(root: Path) -> list[tuple[str, int]]:
    table = deltalake.DeltaTable(f"{root}/out").to_pyarrow_table()
    return sorted(zip(*(table[name].to_pylist() for name in ("session_key", "event_count")), strict=True))


def in_topic(broker: Broker, topic: str) -> list[tuple[str, int]]:
    return sorted((value["session_key"], value["event_count"]) for value in records(broker, topic).values())


@pytest.mark.parametrize("emit", ["changes", "final"])
def test_a_topic_and_a_table_are_served_by_one_process(
    spark: SparkSession, broker: Broker, tmp_path: Path, emit: str
) -> None:
    topic = f"both-{tmp_path.name}-{emit}"
    sink = {
        "kafka": {"bootstrap_servers": broker.bootstrap_servers, "topic": topic, "emit": emit},
        "delta": {"path": "out", "emit": emit, "every": "100 ms"},
    }
    session = {"gap": "10 seconds", "grace": "0 seconds", "retention": "1 hour"}
    file = write_config(tmp_path, session=session, sink=sink, pipeline={"trigger": "100 ms"})
    config = load_config(file)

    def ran(number: int) -> list[tuple[str, int]]:
        write_rows(tmp_path, f"{number}.json", some_rows(number))
        run(spark, config, once=True, drain=True)
        return sorted((row.session_key, row.event_count) for row in read_sessions(spark, config).collect())

    ran(0)
    assert publish(spark, config, once=True, only="delta").batches == 0
    assert publish(spark, config, once=True, only="kafka").steps == 0
    with subprocess.Popen(
        [sys.executable, "-m", "sessionlake", "publish", str(file)],
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as publisher:
        assert publisher.stdout is not None
        try:
            for number in (1, 2):
                wanted = ran(number)
                wait_for(publisher.stdout, "delta at batch")
                assert publish(spark, config, once=True, only="delta").steps <= 1
                assert in_table(tmp_path) == wanted
        finally:
            publisher.send_signal(signal.SIGINT)
        wait_for(publisher.stdout, "stopped; nothing is lost")
        assert publisher.wait(WAIT_S) == 0
    publish(spark, config, once=True, only="kafka")
    assert in_topic(broker, topic) == wanted
