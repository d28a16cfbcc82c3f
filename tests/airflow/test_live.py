"""Airflow for real, as `make airflow` starts it: DAGs triggered as the UI does; killed schedulers, workers and tasks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.airflow.live import LiveAirflow, live_airflow, release
from tests.airflow.support import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1500)]
HELD = 5
# What an undisturbed run of the demo counts: batches of one file each, whatever kills them in between.
INPUT, ACCEPTED = 62_726, 61_664
STREAM, MICRO = "sessionize_stream", "sessionize_micro"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    with live_airflow(tmp_path_factory.mktemp("live"), hold_back=HELD) as running:
        yield running


def sessions_hold(airflow: LiveAirflow) -> int:
    """Return how many events are in the sessions that are there."""
    last = (
        "select arg_max(op, batch_id) op, arg_max(event_count, batch_id) n from t group by session_key, session_start"
    )
    return int(airflow.query("session_changelog", f"select sum(n) from ({last}) where op = 'upsert'"))


def total(airflow: LiveAirflow, name: str) -> int:
    return sum(commit["counts"].get(name, 0) for commit in airflow.commits())


def batches(airflow: LiveAirflow) -> list[int]:
    return [commit["batch_id"] for commit in airflow.commits()]


def one_driver(airflow: LiveAirflow) -> psutil.Process:
    """Return the one sessionizer that runs, as soon as it holds the store: one that finds it held ends, and is tried again."""

    def holder() -> psutil.Process | None:
        lock = next((airflow.root / "store").glob("*/LOCK"), None)
        held_by = int(lock.read_text() or 0) if lock else 0
        return next((driver for driver in airflow.drivers() if held_by in children(driver)), None)

    driver: psutil.Process = wait_for(holder, 250)
    assert airflow.drivers() == [driver]
    return driver


def children(process: psutil.Process) -> list[int]:
    """Return the processes below one; none where some of them ended meanwhile: look again."""
    try:
        return [child.pid for child in process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def next_batch(airflow: LiveAirflow) -> None:
    """Let a file arrive and wait until it is committed."""
    before = len(batches(airflow))
    release(airflow)
    wait_for(lambda: len(batches(airflow)) > before, 200)


def test_from_start_to_green_reprocess_late(airflow: LiveAirflow, capsys: pytest.CaptureFixture[str]) -> None:
    ready = airflow.age()
    first = wait_for(lambda: airflow.runs(MICRO), 60)[0]["dag_run_id"]
    assert airflow.wait_for_run(MICRO, first) == "success", airflow.log_of(MICRO, first)
    assert sessions_hold(airflow) == total(airflow, "accepted")
    late = total(airflow, "late")
    assert late == airflow.query("late_events", "select count(*) from t") > 0

    run = airflow.trigger("reprocess_late", "by_hand")
    assert airflow.wait_for_run("reprocess_late", run) == "success", airflow.log_of("reprocess_late", run)
    took = airflow.age()
    with capsys.disabled():
        print(f"\nAirflow ready after {ready:.0f} s, reprocess_late green {took:.0f} s after the start")  # noqa: T201
    metrics = airflow.result("reprocess_late", run)
    assert metrics["restated"] > 0
    assert metrics["late_events"] == late == metrics["restated"] + metrics["duplicates"] + metrics["expired"]
    assert sessions_hold(airflow) == total(airflow, "accepted") + metrics["restated"]


def test_cleared_run_does_nothing_twice(airflow: LiveAirflow) -> None:
    before = (sessions_hold(airflow), airflow.query("corrections", "select count(*) from t"))
    metrics = airflow.result("reprocess_late", "by_hand")
    airflow.call(
        "POST",
        "/dags/reprocess_late/clearTaskInstances",
        {"dag_run_id": "by_hand", "dry_run": False, "only_failed": False, "reset_dag_runs": True},
    )
    wait_for(lambda: airflow.task("reprocess_late", "by_hand")["try_number"] == 2, 60)
    assert airflow.wait_for_run("reprocess_late", "by_hand") == "success"
    assert (sessions_hold(airflow), airflow.query("corrections", "select count(*) from t")) == before
    assert airflow.result("reprocess_late", "by_hand") == metrics


@pytest.mark.parametrize("wrong", [{"apply": "maybe"}, {"from": "yesterday"}, {"config": "nope.toml"}])
def test_trigger_refuses_what_is_no_value(airflow: LiveAirflow, wrong: dict[str, Any]) -> None:
    with pytest.raises(OSError, match="400"):
        airflow.trigger("reprocess_late", "wrong", **wrong)


def test_double_trigger_of_the_stream_waits(airflow: LiveAirflow) -> None:
    airflow.pause(MICRO, paused=True)
    airflow.pause(STREAM, paused=False)
    one_driver(airflow)
    airflow.trigger(STREAM, "second", minutes=1)
    next_batch(airflow)
    assert sorted(run["state"] for run in airflow.runs(STREAM)) == ["queued", "running"]
    assert len(airflow.drivers()) == 1


def test_micro_run_beside_the_stream_is_skipped(airflow: LiveAirflow) -> None:
    airflow.pause(MICRO, paused=False)
    run = airflow.trigger(MICRO, "beside")
    assert airflow.wait_for_run(MICRO, run) == "success"
    assert airflow.task(MICRO, run)["state"] == "skipped"
    assert "a pipeline has one driver" in airflow.log_of(MICRO, run)
    airflow.pause(MICRO, paused=True)


def running_task(airflow: LiveAirflow) -> psutil.Process:
    """Return the process of the stream's task, the JVM's parent."""
    parent = one_driver(airflow).parent()
    assert parent is not None
    return parent


@pytest.mark.parametrize("victim", ["task", "worker"])
def test_killed_task_or_worker_takes_its_driver_along_and_is_tried_again(airflow: LiveAirflow, victim: str) -> None:
    task = running_task(airflow)
    driver = one_driver(airflow)
    process: Any = task if victim == "task" else task.parent()
    process.kill()
    wait_for(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE, 30)
    new = wait_for(lambda: [found for found in airflow.drivers() if found.pid != driver.pid], 250)
    assert len(new) == 1
    next_batch(airflow)
    assert len(airflow.drivers()) == 1


def test_cleared_stream_stops_its_driver_first(airflow: LiveAirflow) -> None:
    driver = one_driver(airflow)
    run = next(run["dag_run_id"] for run in airflow.runs(STREAM) if run["state"] == "running")
    body = {"dag_run_id": run, "dry_run": False, "only_failed": False, "only_running": True, "reset_dag_runs": True}
    airflow.call("POST", f"/dags/{STREAM}/clearTaskInstances", body)
    wait_for(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE, 60)
    wait_for(airflow.drivers, 200)
    one_driver(airflow)
    next_batch(airflow)


# Last of those that end things: what a dead scheduler had started is another's only after minutes.
def test_killed_scheduler_neither_stops_nor_doubles_the_stream(airflow: LiveAirflow) -> None:
    driver = one_driver(airflow)
    file = airflow.place.home / "components" / "scheduler.pid"
    scheduler = int(file.read_text())
    os.kill(scheduler, signal.SIGKILL)
    wait_for(lambda: int(file.read_text() or 0) != scheduler, 60)
    next_batch(airflow)
    assert [found.pid for found in airflow.drivers()] == [driver.pid]


def backfills(airflow: LiveAirflow) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = airflow.call("GET", "/backfills?dag_id=backfill_sessions")["backfills"]
    return found


def test_backfill_over_the_stream_is_idempotent(airflow: LiveAirflow) -> None:
    day = str(airflow.query("session_changelog", "select max(session_start)::date from t"))
    before = sessions_hold(airflow)
    for behaviour in ("none", "completed"):
        command = ["backfill", "create", "--dag-id", "backfill_sessions", "--from-date", day, "--to-date", day]
        command += ["--reprocess-behavior", behaviour]
        airflow_cli = str(Path(sys.executable).with_name("airflow"))
        done = subprocess.run(
            [airflow_cli, *command], env=airflow.place.environment(), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        ended = lambda: [  # noqa: E731
            run
            for run in airflow.runs("backfill_sessions")
            if run["run_type"] == "backfill" and run["state"] in {"success", "failed"}
        ]
        assert [run["state"] for run in wait_for(ended, 300)] == ["success"]
        # Airflow takes no second one while the first counts as running, which it does for some seconds more.
        wait_for(lambda: all(each["completed_at"] for each in backfills(airflow)), 200)
    assert sessions_hold(airflow) == before


def test_nothing_was_lost_or_counted_twice_and_nothing_stays(airflow: LiveAirflow) -> None:
    while any((airflow.root / "held").iterdir()):
        next_batch(airflow)
    assert batches(airflow) == list(range(len(batches(airflow))))
    assert (total(airflow, "input"), total(airflow, "accepted")) == (INPUT, ACCEPTED)
    assert total(airflow, "late") == airflow.query("late_events", "select count(*) from t")
    assert total(airflow, "late") + total(airflow, "dead") == INPUT - ACCEPTED
    restated = airflow.result("reprocess_late", "by_hand")["restated"]
    assert sessions_hold(airflow) == ACCEPTED + restated
    assert airflow.stop() == []
