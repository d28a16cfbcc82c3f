"""Whether a pipeline runs, waits to be started again, or neither: by its lock, and by a record that ends with its process."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from sessionlake.cli.status import pipeline_object, print_status
from sessionlake.config.load import Config
from sessionlake.errors import (
    AggregateError,
    AwaitedError,
    BusyError,
    LockedError,
    NoBatchesError,
    NotNeededError,
    PipelineStateError,
)
from sessionlake.observe import metrics, standing
from sessionlake.observe.exporter import Exporter
from sessionlake.observe.overview import State, overview
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


def test_a_failure_of_a_run_outlives_it_until_a_run_is_well(config: Config) -> None:
    with pytest.raises(PipelineStateError), standing.failure_kept(config):
        raise PipelineStateError("checkpoint: '/x' is missing; put it back\nmore")
    assert standing.failing(config) is None  # nobody starts it again
    found = standing.last_failure(config)
    assert found is not None
    assert found.error == "checkpoint: '/x' is missing; put it back"
    assert abs(found.at_us - time.time_ns() // 1000) < 60_000_000
    with locked_store(config):
        assert standing.last_failure(config) is None  # a run is at work
    assert standing.last_failure(config) == found
    with standing.failure_kept(config):
        pass
    assert standing.last_failure(config) is None


def test_a_stream_is_well_after_a_batch_and_fails_again(config: Config) -> None:
    standing.failed(config, ValueError("x"))
    found = []

    def stream() -> None:
        with standing.failure_kept(config) as well:
            well()
            found.append(standing.last_failure(config))
            raise ValueError("y")

    with pytest.raises(ValueError, match="y"):
        stream()
    assert found == [None]
    kept = standing.last_failure(config)
    assert kept is not None
    assert kept.error == "ValueError: y"


@pytest.mark.parametrize(
    "error",
    [
        LockedError("x"),
        BusyError("x"),
        NotNeededError("x"),
        AwaitedError("x"),
        NoBatchesError("x"),
        KeyboardInterrupt(),
    ],
)
def test_who_finds_another_run_at_work_or_waits_or_is_stopped_has_not_failed(
    config: Config, error: BaseException
) -> None:
    with pytest.raises(type(error)), standing.failure_kept(config):
        raise error
    assert standing.last_failure(config) is None
    standing.failed(config, ValueError("before"))
    with pytest.raises(type(error)), standing.failure_kept(config):
        raise error
    assert standing.last_failure(config) is not None


def test_what_a_users_class_says_of_an_event_is_not_kept_and_a_long_error_is_cut(config: Config) -> None:
    standing.failed(
        config, AggregateError("aggregates.x: a:B.value raised ValueError: 'ann' is wrong; correct the class")
    )
    found = standing.last_failure(config)
    assert found is not None
    assert "ann" not in found.error
    standing.failed(config, PipelineStateError("x" * 100_000))
    assert Path(config.lock_dir, "FAILING").stat().st_size < 2000


def test_a_failure_is_kept_elsewhere_if_the_stores_disk_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = make_config(tmp_path, pipeline={"store": "/proc/stores"})
    standing.failed(config, PipelineStateError("x"))
    assert standing.last_failure(config) is not None
    (kept,) = tmp_path.glob("sessionlake-*/*")
    assert kept.parent.stat().st_mode & 0o077 == 0
    standing.well(config)
    assert standing.last_failure(config) is None


def test_a_link_of_somebody_else_among_the_temporary_files_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = make_config(tmp_path, pipeline={"store": "/proc/stores"})
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"sessionlake-{os.getuid()}").symlink_to(tmp_path / "theirs")
    standing.failed(config, PipelineStateError("x"))
    assert standing.last_failure(config) is None
    assert not [*(tmp_path / "theirs").iterdir()]


def test_a_record_of_an_earlier_release_is_no_last_failure(config: Config) -> None:
    standing.failed(config, ValueError("x"), 600)
    file = Path(config.lock_dir, "FAILING")
    record = json.loads(file.read_text())
    del record["at_us"]
    file.write_text(json.dumps(record))
    assert standing.failing(config) is not None
    assert standing.last_failure(config) is None


def test_a_pipeline_without_batches_says_why_its_first_run_failed(config: Config) -> None:
    standing.failed(config, PipelineStateError("checkpoint: '/x' is missing; put it back"))
    found = overview(config)
    assert (found.state, found.told) == (State.NEW, "checkpoint: '/x' is missing; put it back")
    assert pipeline_object(found, 0)["error"] == found.told
    with pytest.raises(NoBatchesError, match="the last run failed: checkpoint: '/x' is missing"):
        print_status(config)
    exporter = Exporter(config)
    assert exporter.refresh() is not None
    samples = [sample for family in exporter.readings.collect() for sample in family.samples]
    assert [one.value for one in samples if one.name == metrics.FAILING.name] == [1]
    standing.well(config)
    assert overview(config).told == ""


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
