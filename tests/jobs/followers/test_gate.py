"""Back-pressure: a stream waits for a follower that is too far behind, names it, goes on by itself, and never waits for good for one that can't be read."""

import logging
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import IO

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.config.project import load_project
from sessionlake.jobs.followers import gate
from sessionlake.jobs.followers.gate import held_back
from sessionlake.jobs.publish import publish
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from tests.project.chain_support import CLICKS, DAYS, write

DELTA = '[sink.delta]\npath = "lake/out"\n'
WAIT_S = 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project.toml").write_text("[pipeline]\nshards = 2\n")
    (tmp_path / "days.toml").write_text(DAYS)
    (tmp_path / "events").mkdir()
    limited(tmp_path)
    return tmp_path


def limited(root: Path, more: str = "", most: int = 1) -> None:
    (root / "clicks.toml").write_text(f'[pipeline]\nmax_lag = {most}\ntrigger = "100 ms"\n{CLICKS}{more}')


def config_of(root: Path, name: str = "clicks") -> Config:
    return load_project(str(root)).configs[name]


def batches(spark: SparkSession, root: Path, *numbers: int) -> None:
    for number in numbers:
        write(root, number)
        run(spark, config_of(root), once=True)


class Waiting(Thread):
    """A stream that comes to a batch, and may have to wait for followers."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        super().__init__(daemon=True)
        self.ending, self._wait = Event(), held_back(Tables.of(spark, config), config)
        self.start()

    def run(self) -> None:
        self._wait(self.ending)

    @property
    def goes_on(self) -> bool:
        self.join(WAIT_S)
        return not self.is_alive()


def await_line(caplog: pytest.LogCaptureFixture, text: str, waiting: Waiting) -> str:
    """Return the line with a text, once it is there; the stream waits until then."""
    while True:
        line = next((message for message in caplog.messages if text in message), None)
        if line is not None:
            return line
        assert waiting.is_alive(), f"goes on without {text!r}: {caplog.messages}"


def test_a_stream_waits_for_a_pipeline_behind_and_then_for_a_sink(
    spark: SparkSession, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limited(root, DELTA)
    batches(spark, root, 0)
    run(spark, config_of(root, "days"), once=True)
    assert Waiting(spark, config_of(root)).goes_on, "one batch may be missing in the table"
    batches(spark, root, 1, 2)
    waiting = Waiting(spark, config_of(root))
    line = await_line(caplog, "the stream waits", waiting)
    assert line == (
        "clicks: pipeline.max_lag: pipeline 'days' is 2 batches behind, more than 1; the stream waits for it, and loses nothing: "
        "run it, or delete its tables if it is not used any more"
    )
    run(spark, config_of(root, "days"), once=True)
    await_line(caplog, "sink.delta is 3 batches behind, more than 1; the stream waits for it", waiting)
    publish(spark, config_of(root), once=True)
    assert waiting.goes_on
    assert [text for text in caplog.messages if "goes on" in text] == [
        "clicks: pipeline.max_lag: sink.delta has caught up; the stream goes on"
    ]


def test_a_stream_that_is_to_end_waits_no_longer(
    spark: SparkSession, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limited(root, DELTA)
    batches(spark, root, 0, 1)
    waiting = Waiting(spark, config_of(root))
    await_line(caplog, "the stream waits", waiting)
    waiting.ending.set()
    assert waiting.goes_on
    assert not [text for text in caplog.messages if "goes on" in text]


def test_one_that_cannot_be_read_holds_the_stream_up_for_a_bounded_time(
    spark: SparkSession, root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "UNREADABLE_S", 2.0)
    limited(root, '[sink.postgres]\nurl = "postgresql://nobody@127.0.0.1:1/x"\ntable = "sessions"\n')
    batches(spark, root, 0, 1)
    config = config_of(root)
    wait, ending = held_back(Tables.of(spark, config), config), Event()
    wait(ending)
    first, second = caplog.messages[-2:]
    assert first.startswith(
        "clicks: pipeline.max_lag: how far sink.postgres is can't be read (sink.postgres: 'sessions' can't be reached"
    )
    assert "so it counts as behind; the stream waits for it, and loses nothing: run `sessionlake publish`" in first
    assert "sink.postgres can't be read" in second
    assert second.endswith("the stream goes on without it, and loses nothing: it catches up when it runs again")
    told = len(caplog.messages)
    wait(ending)
    assert len(caplog.messages) == told, "neither waited for nor told before each batch"


def test_a_run_that_ends_does_not_wait_and_names_who_is_behind(
    spark: SparkSession, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from sessionlake.cli.stream import stream_once

    limited(root, DELTA)
    batches(spark, root, 0, 1)
    caplog.set_level(logging.WARNING)
    write(root, 2)
    stream_once(spark, config_of(root), lambda _: None)
    assert last_batch(Lake.of(config_of(root))).batch_id == 2
    (told,) = (text for text in caplog.messages if "max_lag" in text)
    assert told == (
        "clicks: pipeline.max_lag: sink.delta is 2 batches behind, more than 1; a run with --once does not wait for it: "
        "run `sessionlake publish`, or remove its section if it is not used any more"
    )


def test_a_limit_of_the_sink_goes_before_that_of_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    kafka = '[sink.kafka]\nbootstrap_servers = "127.0.0.1:1"\ntopic = "t"\nmax_lag = 7\n'
    (tmp_path / "clicks.toml").write_text(f'[pipeline]\nname = "clicks"\nwarehouse = "lake"\n{CLICKS}{kafka}')
    assert gate.limits_of(load_config(tmp_path / "clicks.toml")) == {"sink.kafka": ("sink.kafka.max_lag", 7)}


def wait_for(lines: IO[str], text: str) -> None:
    """Read lines up to one with a text; the test's own limit of time ends what never says it."""
    assert any(text in " ".join(line.split()) for line in lines), f"ended without {text!r}"


@pytest.mark.slow
@pytest.mark.timeout(2 * WAIT_S)
def test_a_stream_waits_until_a_pipeline_behind_runs_again(spark: SparkSession, root: Path) -> None:
    limited(root, most=2)
    batches(spark, root, 0)
    run(spark, config_of(root, "days"), once=True)
    write(root, 1)
    command = [sys.executable, "-m", "sessionlake", "run", str(root / "clicks.toml")]
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        for number in range(2, 5):
            wait_for(stream.stdout, f"batch {number - 1}")
            write(root, number)
        wait_for(stream.stdout, "pipeline 'days' is 3 batches behind, more than 2; the stream waits for it")
        assert last_batch(Lake.of(config_of(root))).batch_id == 3
        run(spark, config_of(root, "days"), once=True)
        wait_for(stream.stdout, "the stream goes on")
        wait_for(stream.stdout, "batch 4")
        stream.send_signal(signal.SIGINT)
        assert stream.wait(WAIT_S) == 0
