"""Whether a pipeline runs, waits to be started again, or neither: by its lock, and by a record that ends with its process."""

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.observe import metrics, standing
from sessionlake.observe.readings import Readings, served
from sessionlake.stream.lock import locked_store
from tests.airflow.live import free_port
from tests.support import make_config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path)


def test_the_driver_is_who_holds_the_lock(config: Config) -> None:
    assert standing.driver(config) is None
    with locked_store(config):
        assert standing.driver(config) == os.getpid()
    assert standing.driver(config) is None


def test_a_lock_of_the_same_number_on_another_disk_is_no_driver(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked_store(config):
        inode = Path(config.lock_dir, "LOCK").stat().st_ino
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE {os.getpid() + 1} 08:01:{inode} 0 EOF\n")
    monkeypatch.setattr(standing, "_LOCKS", locks)
    assert standing.driver(config) is None


def test_a_failure_is_told_until_the_pipeline_is_started_again(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert standing.failing(config) is None
    standing.failed(config, PipelineStateError("checkpoint: '/x' is missing; put it back\nmore"), 4)
    found = standing.failing(config)
    assert found is not None
    assert found.error == "checkpoint: '/x' is missing; put it back"
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 10 * 10**9)
    assert standing.failing(config) is None


def test_of_an_error_that_is_not_ours_no_value_is_told(config: Config) -> None:
    standing.failed(config, ValueError("key 'ann' is wrong"), 4)
    found = standing.failing(config)
    assert found is not None
    assert found.error == "ValueError: key '...' is wrong"


def test_a_record_of_a_process_that_has_ended_tells_nothing(config: Config) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
    standing.failed(config, ValueError("x"), 600)
    file = Path(config.lock_dir, "FAILING")
    file.write_text(file.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {ended.pid}'))
    assert standing.failing(config) is None


def test_metrics_of_several_pipelines_share_an_address() -> None:
    port, one, other = free_port(19400), Readings("one"), Readings("other")
    for readings in (one, other):
        readings.set(metrics.STREAM_START, 7)
    with served(one, "127.0.0.1", port) as first:
        with served(other, "127.0.0.1", port) as second:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            assert (first, second) == (port, port)
        alone = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    lines = [line for line in text.splitlines() if "stream_start" in line]
    assert len([line for line in lines if line.startswith("# TYPE")]) == 1
    assert sum('pipeline="one"' in line for line in lines) == sum('pipeline="other"' in line for line in lines) == 1
    assert 'pipeline="other"' not in alone
