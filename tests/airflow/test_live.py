"""Airflow for real, as `make airflow` starts it: DAGs triggered as the UI does; killed schedulers, workers and tasks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from tests.airflow.live import ENDED, LiveAirflow, live_airflow, release, with_a_stream
from tests.airflow.support import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1500)]
FILES, HELD = 24, 5
STREAM, MICRO, LATE, BACKFILL = "commits.run", "weeks.run", "commits.reprocess_late", "commits.backfill"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    with live_airflow(tmp_path_factory.mktemp("live"), partial(with_a_stream, held=HELD)) as running:
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
    """Return the one stream that runs, as soon as it holds the store: one that finds it held ends, and is tried again."""

    def holder() -> psutil.Process | None:
        lock = next((airflow.root / "store" / "commits").glob("LOCK"), None)
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
    # The stream has begun by itself, and takes a file a batch.
    wait_for(lambda: len(batches(airflow)) >= FILES - HELD, 400)
    assert sessions_hold(airflow) == total(airflow, "accepted")
    late = total(airflow, "late")
    assert late == airflow.query("late_events", "select count(*) from t") > 0

    run = airflow.trigger(LATE, "by_hand")
    assert airflow.wait_for_run(LATE, run) == "success", airflow.log_of(LATE, run)
    took = airflow.age()
    with capsys.disabled():
        print(f"\nAirflow ready after {ready:.0f} s, reprocess_late green {took:.0f} s after the start")  # noqa: T201
    metrics = airflow.result(LATE, run)
    assert metrics["restated"] > 0
    assert metrics["late_events"] == late == metrics["restated"] + metrics["duplicates"] + metrics["expired"]
    wait_for(lambda: sessions_hold(airflow) == total(airflow, "accepted") + metrics["restated"], 100)


def test_cleared_run_does_nothing_twice(airflow: LiveAirflow) -> None:
    before = (sessions_hold(airflow), airflow.query("corrections", "select count(*) from t"))
    metrics = airflow.result(LATE, "by_hand")
    airflow.call(
        "POST",
        f"/dags/{LATE}/clearTaskInstances",
        {"dag_run_id": "by_hand", "dry_run": False, "only_failed": False, "reset_dag_runs": True},
    )
    wait_for(lambda: airflow.task(LATE, "by_hand")["try_number"] == 2, 60)
    assert airflow.wait_for_run(LATE, "by_hand") == "success"
    assert (sessions_hold(airflow), airflow.query("corrections", "select count(*) from t")) == before
    assert airflow.result(LATE, "by_hand") == metrics


@pytest.mark.parametrize("wrong", [{"apply": "maybe"}, {"from": "yesterday"}])
def test_trigger_refuses_what_is_no_value(airflow: LiveAirflow, wrong: dict[str, Any]) -> None:
    with pytest.raises(OSError, match="400"):
        airflow.trigger(LATE, "wrong", **wrong)


def test_double_trigger_of_the_stream_waits(airflow: LiveAirflow) -> None:
    one_driver(airflow)
    airflow.trigger(STREAM, "second", minutes=1)
    next_batch(airflow)
    assert sorted(run["state"] for run in airflow.runs(STREAM) if run["state"] not in ENDED) == ["queued", "running"]
    assert len(airflow.drivers()) == 1


def test_a_small_run_beside_another_driver_is_skipped(airflow: LiveAirflow) -> None:
    first = wait_for(lambda: airflow.runs(MICRO), 60)[0]["dag_run_id"]
    assert airflow.wait_for_run(MICRO, first) == "success", airflow.log_of(MICRO, first)
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(airflow.root / "weeks.toml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        lock = airflow.root / "store" / "weeks" / "LOCK"
        wait_for(lambda: lock.read_text() == str(other.pid), 100)
        run = airflow.trigger(MICRO, "beside")
        assert airflow.wait_for_run(MICRO, run) == "success"
        other.terminate()
    assert airflow.task(MICRO, run)["state"] == "skipped"
    assert "a pipeline has one driver" in airflow.log_of(MICRO, run)


def test_a_file_that_is_added_has_its_dags_and_a_broken_one_is_an_error_that_names_it(airflow: LiveAirflow) -> None:
    text = (airflow.root / "folders.toml").read_text()
    (airflow.root / "seventh.toml").write_text(text)
    (airflow.root / "broken.toml").write_text("[session\n")
    wait_for(lambda: airflow.api.exists("/dags/seventh.run") and airflow.runs("seventh.run"), 200)
    run = airflow.runs("seventh.run")[0]["dag_run_id"]
    assert airflow.wait_for_run("seventh.run", run) == "success", airflow.log_of("seventh.run", run)
    errors = wait_for(lambda: airflow.call("GET", "/importErrors")["import_errors"], 200)
    assert [error["filename"].rpartition("/")[2] for error in errors] == ["broken_pipelines.py"]
    assert "broken.toml: is no valid TOML" in errors[0]["stack_trace"]
    assert airflow.call("GET", "/dags/weeks.compact")["is_stale"] is False
    (airflow.root / "broken.toml").unlink()
    wait_for(lambda: not airflow.call("GET", "/importErrors")["import_errors"], 200)


def test_a_red_check_of_one_pipeline_leaves_the_others_green(airflow: LiveAirflow) -> None:
    config = airflow.root / "weeks.toml"
    config.write_text(f"{config.read_text()}\n[quality.aggregates.authors]\nrange = [0, 0]\n")
    red, green = airflow.trigger("weeks.quality", "red", fail_on="warn"), airflow.trigger("seventh.quality", "green")
    assert airflow.wait_for_run("weeks.quality", red) == "failed"
    assert airflow.wait_for_run("seventh.quality", green) == "success", airflow.log_of("seventh.quality", green)
    updated = airflow.call("GET", "/assets/events?limit=100&order_by=-timestamp")["asset_events"]
    by_run = {(event["source_run_id"], event["name"]) for event in updated}
    assert (green, "seventh.checked") in by_run
    assert (red, "weeks.checked") not in by_run


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
    found: list[dict[str, Any]] = airflow.call("GET", f"/backfills?dag_id={BACKFILL}")["backfills"]
    return found


def test_backfill_over_the_stream_is_idempotent(airflow: LiveAirflow) -> None:
    day = str(airflow.query("session_changelog", "select max(session_start)::date from t"))
    before = sessions_hold(airflow)
    for behaviour in ("none", "completed"):
        command = ["backfill", "create", "--dag-id", BACKFILL, "--from-date", day, "--to-date", day]
        command += ["--reprocess-behavior", behaviour]
        airflow_cli = str(Path(sys.executable).with_name("airflow"))
        done = subprocess.run(
            [airflow_cli, *command], env=airflow.place.environment(), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        ended = lambda: [  # noqa: E731
            run
            for run in airflow.runs(BACKFILL)
            if run["run_type"] == "backfill" and run["state"] in {"success", "failed"}
        ]
        assert [run["state"] for run in wait_for(ended, 300)] == ["success"]
        # Airflow takes no second one while the first counts as running, which it does for some seconds more.
        wait_for(lambda: all(each["completed_at"] for each in backfills(airflow)), 200)
    assert sessions_hold(airflow) == before


def events_of_the_source(airflow: LiveAirflow) -> tuple[int, int, int]:
    """Return how many events the files have, how many `where` leaves out, and how many different ones are left."""
    query = """
        select count(*), count(*) filter (not coalesce(ext <> '.parquet', false)),
               count(distinct (author, event_id, authored_at)) filter (ext <> '.parquet')
        from read_json_auto(? || '/*.json.gz')
    """
    lines, filtered, distinct = duckdb.execute(query, [str(airflow.root / "events")]).fetchall()[0]
    return int(lines), int(filtered), int(distinct)


def test_nothing_was_lost_or_counted_twice_and_nothing_stays(airflow: LiveAirflow) -> None:
    while any((airflow.root / "held").iterdir()):
        next_batch(airflow)
    assert batches(airflow) == list(range(len(batches(airflow))))
    lines, filtered, distinct = events_of_the_source(airflow)
    counts = {name: total(airflow, name) for name in ("input", "accepted", "late", "dead", "filtered", "duplicate")}
    assert (counts["input"], counts["filtered"]) == (lines, filtered)
    assert counts["accepted"] + counts["late"] + counts["dead"] == distinct
    assert counts["duplicate"] == lines - filtered - distinct
    assert counts["late"] == airflow.query("late_events", "select count(*) from t")
    restated = airflow.result(LATE, "by_hand")["restated"]
    assert sessions_hold(airflow) == counts["accepted"] + restated
    assert airflow.stop() == []
