"""Backfill through real Spark and real Delta: what is right stays, what is wrong becomes what DuckDB says of the events."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import JobError, SourceError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.run import JobReport
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.backfill.backfill_support import (
    AGGREGATES,
    EVER,
    FILES,
    LATE,
    Row,
    config_of,
    correct,
    event,
    expected,
    sessions,
    tally,
)
from tests.support import make_config, write_rows

POINTS = ["backfill_started", "backfill_before_corrections", "backfill_after_corrections"]


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with late, dead and malformed events, a session removed on purpose, and a partial that a user restated."""
    root = tmp_path_factory.mktemp("backfill")
    config = config_of(root)
    for i, rows in enumerate(FILES[:2]):
        write_rows(root, f"{i}.json", rows)
    run(spark, config, once=True)
    there = sessions(spark, config)
    gone, restated = there["gone", 10], there["restated", 40]
    partial = {"start_time": 45, "end_time": 52, "event_count": 3, "state": restated["state"]}
    correct(
        spark,
        config,
        {"kind": "tombstone", "key": "gone", "start_time": 10, "revision": gone["revision"]},
        {"kind": "restate", "key": "restated", **partial},
    )
    for i, rows in enumerate(FILES[2:], 2):
        write_rows(root, f"{i}.json", rows)
    run(spark, config, once=True)
    return root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    """The same pipeline in the same place, so that its log of files holds; put back afterwards."""
    kept = tmp_path / "kept"
    shutil.copytree(built, kept)
    return built


@pytest.fixture
def restored(built: Path, root: Path, tmp_path: Path) -> Any:
    yield root
    shutil.rmtree(built)
    shutil.copytree(tmp_path / "kept", built)


def right(late: list[Row]) -> dict[tuple[str, int], tuple[int, int, float]]:
    """Return the right sessions by SQL over accepted events and the given late ones; the restated partial by hand."""
    refused = [("a", 12), ("c", 20), ("old", 30)]
    rows = [r for file in FILES for r in file if isinstance(r, dict) and (r["key"], r["time_us"]) not in refused]
    found = expected([r for r in rows if r["key"] != "gone"] + late)
    assert found.pop(("restated", 40)) == (40, 1, 0.1)
    return {**found, ("restated", 40): (52, 4, 0.2)}


@pytest.mark.slow
def test_right_sessions_stay_and_nothing_is_written_by_a_dry_run(spark: SparkSession, root: Path) -> None:
    config = config_of(root)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    found = sessions(spark, config)
    assert tally(found) == right(late=[])
    before = {name: tables[name].latest_version() for name in (schemas.CORRECTIONS, schemas.JOB_RUNS)}
    report = backfill(spark, config, from_us=13, to_us=10**6, dry_run=True)
    assert report.counts["sessions"] == report.counts["unchanged"] == len(found) - 1
    assert (report.counts["corrections"], report.counts["late_included"]) == (0, 0)
    assert {name: tables[name].latest_version() for name in before} == before
    with pytest.raises(JobError, match="--from: must be before --to"):
        backfill(spark, config, from_us=5, to_us=5)


@pytest.mark.slow
@pytest.mark.parametrize("points", [POINTS[-1:], POINTS])
def test_damage_is_repaired_whoever_kills_the_run(
    spark: SparkSession, restored: Path, monkeypatch: pytest.MonkeyPatch, points: list[str]
) -> None:
    config = config_of(restored)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    there = sessions(spark, config)
    wrong, other = there["wrong", 60], there["b", 48]
    put = {"start_time": 58, "end_time": 63, "event_count": 9, "state": other["state"]}
    named = {"start_time": 60, "revision": wrong["revision"]}
    correct(spark, config, {"kind": "replace", "key": "wrong", "remove": [named], "put": [put]})
    run(spark, config, once=True)
    # The file was read when only its first lines were there.
    whole = [*FILES[3], event("b", 80, 0.6), event("d", 77, 0.8)]
    (restored / "events" / "3.json").write_text("".join(json.dumps(row) + "\n" for row in whole))

    def attempt() -> JobReport:
        return backfill(spark, config, from_us=EVER[0], to_us=EVER[1], run_id="r")

    for point in points:
        with crash_at(monkeypatch, point), pytest.raises(CrashError):
            attempt()
    first, second = attempt(), attempt()
    assert (first.repeated, second.repeated) == (False, True)
    assert first.counts == second.counts
    # a with its late event; b with the line that came later; d; wrong.
    assert first.counts["corrections"] == tables[schemas.CORRECTIONS].read().where("job = 'backfill'").count() == 4
    if points is POINTS:
        in_flight = backfill(spark, config, from_us=0, to_us=30, dry_run=True).counts
        assert (in_flight["late_included"], in_flight["corrections"]) == (0, 0)
    assert run(spark, config, once=True).counts["applied"] == 4
    assert tally(sessions(spark, config)) == right([*LATE, event("b", 80, 0.6), event("d", 77, 0.8)])
    if points is POINTS:
        again = backfill(spark, config, from_us=EVER[0], to_us=EVER[1])
        assert (again.counts["corrections"], again.counts["late_included"]) == (0, 1)
        assert reprocess_late(spark, config).counts["late_events"] == 0


@pytest.mark.slow
def test_late_events_of_reprocess_late_count_once_in_flight_and_after(spark: SparkSession, restored: Path) -> None:
    config = config_of(restored)
    in_retention = make_config(restored, session={"grace": "30 us", "retention": "500 us"}, aggregates=AGGREGATES)
    reprocess_late(spark, in_retention)
    in_flight = backfill(spark, config, from_us=0, to_us=30, dry_run=True)
    assert (in_flight.counts["corrections"], in_flight.counts["late_included"]) == (0, 0)
    run(spark, in_retention, once=True)
    assert tally(sessions(spark, config)) == right(late=LATE)
    after = backfill(spark, in_retention, from_us=0, to_us=30, dry_run=True)
    assert (after.counts["corrections"], after.counts["sessions"]) == (0, 1)


@pytest.mark.slow
def test_a_source_file_that_is_gone_is_named(spark: SparkSession, restored: Path) -> None:
    (restored / "events" / "1.json").unlink()
    with pytest.raises(SourceError, match=r"1\.json.*must still be there") as raised:
        backfill(spark, config_of(restored), from_us=40, to_us=60, dry_run=True)
    assert "\n" not in str(raised.value)
