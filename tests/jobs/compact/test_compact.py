"""The compaction job end to end: killed at every point, beside readers and a live stream, and a restore after its trim."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.cli import main
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.compact import compact, job, layout, plan
from sessionlake.jobs.run import JobReport
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches
from tests.engine.crash_support import CrashError, Lake, assert_killed, run_once
from tests.jobs.compact.compact_support import folded, history, live, metadata_of, sessions

TABLES = ("sessions", "session_changelog", "late_events", "dead_letters", "batches")
STEPS = ("fold", "trim", *(f"{step}_{table}" for step in ("optimize", "vacuum") for table in TABLES))
# Between a step's end and the next one's beginning nothing happens.
POINTS = ["compact_before_fold", *(f"compact_after_{step}" for step in STEPS)]
FIRST, SECOND = range(3), range(3, 6)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three batches done, three to come; files that belong to no version may go at once."""
    root = tmp_path_factory.mktemp("compact")
    found = Lake(root / "lake", root / "events")
    found.write_files(FIRST)
    run_once(spark, found)
    for table in (schemas.SESSIONS, schemas.CHANGELOG):
        spark.sql(
            f"alter table delta.`{found.warehouse / table}` set tblproperties "
            "('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        )
    found.write_files(SECOND)
    return found


@pytest.fixture(scope="module")
def folded_once(spark: SparkSession, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three batches folded by MERGE, three more to fold."""
    found = lake.copy(tmp_path_factory.mktemp("folded_once") / "lake")
    compact(spark, impatient(found), method="merge", run_id="first")
    run_once(spark, found)
    return found


@pytest.fixture(autouse=True)
def tidy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small tables be ragged, so that every step has work to do."""
    monkeypatch.setattr(plan, "SPARE_FILES", 0)
    monkeypatch.setattr(layout, "SMALL_FILES", 1)


def impatient(lake: Lake, **settings: str) -> Config:
    """Return a config that keeps nothing for longer than it must."""
    config = lake.config
    changed = {"safety": "0 seconds", "vacuum": "0 hours", **settings}
    return config.model_copy(update={"compact": config.compact.model_copy(update=changed)})


def tables_of(spark: SparkSession, lake: Lake) -> Tables:
    return Tables(spark, lake.config.pipeline.warehouse, CHANGELOG)


def rows(spark: SparkSession, lake: Lake) -> list[Any]:
    return sorted(map(tuple, read_sessions(spark, lake.config).collect()), key=repr)


def uncounted(report: JobReport) -> dict[str, int]:
    """Return the counts but for sizes, and for vacuumed files: a killed run may leave files of its own to be removed."""
    return {name: n for name, n in report.counts.items() if "bytes" not in name and "vacuumed" not in name}


@pytest.mark.slow
@pytest.mark.parametrize("points", [["compact_after_fold"], POINTS])
def test_killed_and_repeated_is_once_and_no_reader_sees_it(
    spark: SparkSession, folded_once: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: list[str]
) -> None:
    ours = folded_once.copy(tmp_path / "ours")
    tables, config = tables_of(spark, ours), impatient(ours)
    expected, side = folded(history(tables)), schemas.LATE_EVENTS
    late, files, last = ours.rows(side), layout.size(tables[side])[0], tables[side].last_commit()
    died: list[str] = []

    def die_once_at_each(point: str) -> None:
        if point in points and point not in died:
            died.append(point)
            assert live(tables) == expected, point
            raise CrashError(point)

    monkeypatch.setattr(failpoints, "hit", die_once_at_each)
    if points is not POINTS:  # one side table for all, which each cost as much
        monkeypatch.setattr(job, "_SIDE_TABLES", (side,))
    for _ in points:
        with pytest.raises(CrashError):
            compact(spark, config, method="merge", run_id="second")
    report = compact(spark, config, method="merge", run_id="second")
    assert died == points
    assert live(tables) == sessions(tables[schemas.SESSIONS].read()) == expected

    assert layout.size(tables[side])[0] < files
    assert ours.rows(side) == late != []
    after = tables[side].last_commit()
    assert last is not None
    assert after is not None
    assert after.metadata["batch_id"] == last.metadata["batch_id"]

    if points is POINTS:
        undisturbed = folded_once.copy(tmp_path / "undisturbed")
        straight = compact(spark, impatient(undisturbed), method="merge", run_id="second")
        assert uncounted(report) == uncounted(straight)
    assert all(report.counts[name] for name in ("rows_folded", "rows_trimmed", "sessions_files_vacuumed"))
    again = compact(spark, config, method="merge", run_id="second")
    assert (again.repeated, again.counts) == (True, report.counts)


@pytest.mark.slow
def test_restore_and_status_after_trim_equal_an_undisturbed_run(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    ours, undisturbed = lake.copy(tmp_path / "ours"), lake.copy(tmp_path / "undisturbed")
    batches = read_batches(tables_of(spark, ours)).orderBy("batch_id").collect()
    for number in range(2):
        report = compact(spark, impatient(ours), run_id=f"run {number}")
    assert report.counts["session_changelog_files_after"] == 0
    assert tables_of(spark, ours)[schemas.CHANGELOG].read().count() == 0
    assert read_batches(tables_of(spark, ours)).orderBy("batch_id").collect() == batches
    assert read_status(ours.config).reconciles
    shutil.rmtree(ours.stores)
    for one in (ours, undisturbed):
        run_once(spark, one)
    new = [[r for r in one.rows(schemas.CHANGELOG) if r["batch_id"] in SECOND] for one in (ours, undisturbed)]
    assert new[0] == new[1] != []
    assert rows(spark, ours) == rows(spark, undisturbed)
    status, other = read_status(ours.config), read_status(undisturbed.config)
    assert (status.reconciles, status.counts) == (True, other.counts)


@pytest.mark.slow
def test_a_live_stream_beside_it_never_fails(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    ours = lake.copy(tmp_path / "ours")
    first, failures = threading.Event(), []

    def stream() -> None:
        try:
            run(spark, ours.config, once=True, on_commit=lambda _: first.set())
        except Exception as error:  # noqa: BLE001 (whatever it is, it fails the test)
            failures.append(error)
        first.set()

    thread = threading.Thread(target=stream)
    thread.start()
    first.wait(120)
    reports = [compact(spark, impatient(ours, vacuum="7 days")) for _ in range(2)]
    thread.join()
    assert failures == []
    assert sum(report.counts["rows_folded"] for report in reports) > 0
    expected = lake.copy(tmp_path / "expected")
    run_once(spark, expected)
    assert rows(spark, ours) == rows(spark, expected)
    last = tables_of(spark, ours)[schemas.CHANGELOG].last_commit()
    assert last is not None
    assert last.metadata["batch_id"] == len(expected.commits()) - 1
    assert [c["batch_id"] for c in ours.commits() if not c.get("copied")] == list(range(len(expected.commits())))


def test_command_line(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    ours = lake.copy(tmp_path / "ours")
    done = CliRunner().invoke(main, ["compact", str(ours.path), "--run-id", "r", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output.splitlines()[-1])["rows_folded"] > 0
    assert "would fold up to batch 2" in done.output
    assert CliRunner().invoke(main, ["compact", str(ours.path), "--method", "magic"]).exit_code == 2
    assert metadata_of(tables_of(spark, ours), schemas.SESSIONS) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["compact_tail_read", "compact_after_fold", "compact_after_trim"])
def test_sigkill(spark: SparkSession, lake: Lake, tmp_path: Path, point: str) -> None:
    ours = lake.copy(tmp_path / "ours")
    expected = folded(history(tables_of(spark, ours)))
    command = [str(Path(sys.executable).with_name("sessionlake")), "compact", str(ours.path), "--run-id", "r"]
    env = {**os.environ, "SESSIONLAKE_KILL_AT": point}
    assert_killed(subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False))
    assert live(tables_of(spark, ours)) == expected
    report = compact(spark, ours.config, run_id="r")
    assert report.counts["rows_folded"] == len(ours.rows(schemas.CHANGELOG))
    assert live(tables_of(spark, ours)) == sessions(tables_of(spark, ours)[schemas.SESSIONS].read()) == expected


@pytest.mark.parametrize(
    ("vacuum", "days", "listed"), [("7 days", 6, False), ("7 days", 8, True), ("0 hours", 0, True)]
)
def test_vacuum_lists_the_files_of_no_table_that_is_younger_than_its_retention(
    spark: SparkSession, lake: Lake, *, vacuum: str, days: int, listed: bool
) -> None:
    tables, statements = tables_of(spark, lake), list[str]()
    created_us = tables[schemas.CHANGELOG].created_us()
    assert created_us is not None
    upkeep = SimpleNamespace(
        tables=tables,
        run=SimpleNamespace(started_us=created_us + days * 86_400_000_000),
        execute=lambda *told: statements.append(told[-1]),
    )
    layout.vacuum(cast("Any", upkeep), impatient(lake, vacuum=vacuum), schemas.CHANGELOG)
    assert bool(statements) is listed
