"""The ledger with both kinds of runs in it, the real commit events, the command line and a real SIGKILL."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.jobs import run as runs
from sessionlake.jobs.again.runs import NUMBER
from sessionlake.jobs.late.ledger import CLAIMS
from sessionlake.jobs.late.spans import BACKFILL
from sessionlake.jobs.run import JobRun, start_run
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import FENCED
from sessionlake.warehouse.tables import spark_schema
from tests.engine.crash_support import FIRST, SECOND, Lake, run_once
from tests.jobs.late.late_support import RETENTION, Late, dead_numbers, events, late_numbers, pipeline, sessionized
from tests.stream import test_sessionizer as commits
from tests.support import make_config

FILES = events(7)
ALL = [event for file in FILES for event in file]


@pytest.fixture
def late(spark: SparkSession, tmp_path: Path) -> Late:
    return pipeline(spark, tmp_path / "base", FILES)


def start_backfill(late: Late) -> JobRun:
    last = late.tables[schemas.CHANGELOG].last_commit()
    assert last is not None
    pinned = {"batch_id": last.metadata["batch_id"], "from_us": None, "to_us": None, "expired_us": 0}
    pinned[NUMBER] = CLAIMS.next_number(late.tables)
    return start_run(late.spark, late.config, BACKFILL, run_id="b", arguments={}, pin=lambda _: pinned, dry_run=False)


def append_replace(run: JobRun, key: str, start: int, end: int) -> None:
    """Append a replace correction at a revision that no session has: it will go stale."""
    some = run.tables[schemas.CHANGELOG].read().where("op = 'upsert'").head()
    assert some is not None
    row: dict[str, Any] = {"correction_id": "backfill/b/1", "kind": "replace", "key": key}
    row |= {"remove": [{"start_time": start, "revision": 99}], "job": BACKFILL, "run_id": "b", "created_at": 0}
    row["put"] = [{"start_time": start, "end_time": end, "event_count": 1, "state": bytes(some["state"])}]
    table = pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA)
    run.append(schemas.CORRECTIONS, run.tables.spark.createDataFrame(table, spark_schema(table.schema)))


def bury_stale(late: Late, batch_id: int) -> None:
    """Add the sessionizer's dead letter of the stale correction, where it writes none."""
    if any(row["reason"] == "stale" for row in late.rows(schemas.DEAD_LETTERS)):
        return
    row = {"reason": "stale", "kind": "replace", "source": "backfill/b/1", "batch_id": batch_id}
    late.tables[schemas.DEAD_LETTERS].append_rows(pa.Table.from_pylist([row], schema=schemas.DEAD_LETTERS_SCHEMA))


@pytest.mark.slow
def test_a_backfill_covers_late_events_until_its_replacement_goes_stale(late: Late) -> None:
    numbers = late_numbers(late)
    behind = sorted((e["time_us"], e["key"]) for e in ALL if e["n"] in numbers)
    middle, key = behind[len(behind) // 2]
    low, high = middle - 10, middle + 10
    backfill = start_backfill(late)
    assert late.late_status().waiting == len(numbers)
    CLAIMS.claim(backfill)
    append_replace(backfill, key, low, high)
    assert late.late_status().waiting == 0
    # It knows of no stale replacement yet, and so leaves all to the backfill.
    assert late.reprocess(run_id="early").counts["late_events"] == 0
    last = late.tables[schemas.CHANGELOG].last_commit()
    assert last is not None
    late.apply()
    bury_stale(late, last.metadata["batch_id"] + 1)
    inside = {e["n"] for e in ALL if e["n"] in numbers and e["key"] == key and low <= e["time_us"] <= high}
    assert late.late_status().waiting == len(inside) > 0
    assert late.reprocess(run_id="next").counts["late_events"] == len(inside)
    late.apply()
    assert late.late_status().waiting == 0
    kept = {n for n in inside if ALL[[e["n"] for e in ALL].index(n)]["time_us"] >= late.watermark() - RETENTION}
    refused = (numbers - kept) | dead_numbers_of_events(late)
    assert late.sessions() == sessionized([e for e in ALL if e["n"] not in refused])


def dead_numbers_of_events(late: Late) -> set[int]:
    rows = (r for r in late.rows(schemas.DEAD_LETTERS) if r["kind"] == "event")
    return {json.loads(r["raw"])["n"] for r in rows}


@pytest.mark.slow
def test_a_backfill_that_has_not_appended_is_fenced(late: Late) -> None:
    backfill = start_backfill(late)
    late.reprocess(run_id="next")
    assert late.tables[schemas.CORRECTIONS].app_version(backfill.app_id) == FENCED
    append_replace(backfill, "a", 0, 1)
    assert all(row["job"] != BACKFILL for row in late.rows(schemas.CORRECTIONS))
    assert len(dead_numbers(late, of_jobs=True)) == late.late_status().expired


@pytest.mark.slow
def test_a_run_from_a_clock_ahead_blocks_nobody(late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    year_ahead = time.time_ns() + 365 * 86_400 * 10**9
    with monkeypatch.context() as patch:
        patch.setattr(runs.time, "time_ns", lambda: year_ahead)
        ahead = late.reprocess(run_id="ahead")
    assert ahead.counts["late_events"] > 0
    again = late.reprocess(run_id="now")
    assert (again.counts["late_events"], late.late_status().waiting) == (0, 0)


@pytest.mark.slow
def test_commit_events_equal_sql_over_those_accepted_or_restated(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    frames = []
    for number in range(8, 10):
        name = f"part-{number:03}.json.gz"
        shutil.copy(commits.COMMITS / name, tmp_path / "events" / name)
        os.utime(tmp_path / "events" / name, (1_700_000_000 + number, 1_700_000_000 + number))
        with gzip.open(commits.COMMITS / name, "rt") as lines:
            frames.append(pd.DataFrame([json.loads(line) for line in lines]))
    config = make_config(
        tmp_path,
        event={"key": "author", "time": "authored_at", "time_unit": None, "id": "event_id", "max_future_skew": "1 day"},
        session={"gap": "1 hour", "grace": "1 day", "retention": "200 days"},
        aggregates={
            "added": "sum(added)",
            "repos": "count_distinct(repo)",
            "first_top": "first(top)",
            "middle": "percentile(added, 0.5)",
        },
    )
    run(spark, config, once=True)
    late = Late(spark, tmp_path, config)
    before = late.late_status()
    assert before.waiting == before.events > 100
    report = late.reprocess()
    late.apply()
    status = late.status()
    assert report.counts["restated"] == status.reprocessed > 0
    assert report.counts["corrections"] < report.counts["restated"]
    refused = {json.loads(row["raw"])["event_id"] for row in late.rows(schemas.DEAD_LETTERS)}
    everything = pd.concat(frames)
    counted = everything[~everything["event_id"].isin(refused)]
    commits.assert_equals_sql(commits.sessions(spark, config), commits.sql_sessions(counted))


def lake_with_late_events(spark: SparkSession, root: Path) -> Lake:
    lake = Lake(root / "lake", root / "events", {"retention": "90 minutes"})
    lake.write_files(FIRST)
    lake.write_files(SECOND)
    run_once(spark, lake)
    return lake


@pytest.mark.slow
def test_the_command_line_reprocesses_applies_and_shows(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_with_late_events(spark, tmp_path)
    done = CliRunner().invoke(main, ["reprocess-late", str(lake.path), "--run-id", "r"])
    assert done.exit_code == 0, done.output
    told = json.loads(next(line for line in done.output.splitlines() if line.startswith("{")))
    assert told["restated"] + told["expired"] == told["late_events"] == len(lake.rows(schemas.LATE_EVENTS))
    status = CliRunner().invoke(main, ["status", str(lake.path)]).output
    line = (
        f"late events  {told['late_events']} = {told['restated']} reprocessed + {told['expired']} expired + 0 waiting"
    )
    assert line in status
    assert "reconciles   yes" in status
    wrong = CliRunner().invoke(main, ["reprocess-late", str(lake.path), "--from", "soon"])
    message = "sessionlake: --from: 'soon' is no ISO date or time; write for example '2026-01-31'\n"
    assert (wrong.exit_code, wrong.stderr) == (2, message)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["corrections", "dead_letters"])
def test_kill_9_between_an_append_and_the_end_then_again_is_once(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    lake = lake_with_late_events(spark, tmp_path)
    command = [str(Path(sys.executable).with_name("sessionlake")), "reprocess-late", str(lake.path), "--run-id", "r"]
    env = {**os.environ, "SESSIONLAKE_KILL_AT": f"reprocess_late_after_{table}", "PYTHONFAULTHANDLER": "0"}
    killed = subprocess.run(command, env=env, cwd=lake.root, capture_output=True, text=True, timeout=400, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    again = CliRunner().invoke(main, ["reprocess-late", str(lake.path), "--run-id", "r"])
    assert again.exit_code == 0, again.output
    restated = sum(row["event_count"] for row in lake.rows(schemas.CORRECTIONS))
    buried = sum(row["batch_id"] is None for row in lake.rows(schemas.DEAD_LETTERS))
    assert restated + buried == len(lake.rows(schemas.LATE_EVENTS))
    assert "0 waiting" in CliRunner().invoke(main, ["status", str(lake.path)]).output
