"""The archive through real Spark and real Delta: every event that was not refused, once, and a backfill from nothing else."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.jobs import CompactSection
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, SourceError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.rebuild.archive import find_archive
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.backfill.backfill_support import EVER, FILES, LATE, Row, config_of, correct, expected, sessions, tally
from tests.support import make_config, write_rows

REFUSED = [("c", 20), ("old", 30)]
"""Beyond retention."""


def rows_of(files: list[list[Row | str]]) -> list[Row]:
    rows = [row for file in files for row in file if isinstance(row, dict)]
    return [row for row in rows if (row["key"], row["time_us"]) not in REFUSED]


def archived(spark: SparkSession, config: Config) -> list[tuple[str, int, float]]:
    table = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.EVENTS].read()
    found = table.select("key", F.unix_micros("event_time"), "event.v").collect()
    return sorted((row[0], row[1], row[2]) for row in found)


def write(root: Path, files: range) -> None:
    for i in files:
        write_rows(root, f"{i}.json", FILES[i])


@pytest.mark.slow
def test_a_backfill_needs_no_source_and_a_crash_archives_nothing_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, archive=True)
    write(tmp_path, range(2))
    for point in ("after_archived", "before_changelog"):
        with crash_at(monkeypatch, point), pytest.raises(Exception, match="CrashError"):
            run(spark, config, once=True)
    run(spark, config, once=True)
    write(tmp_path, range(2, 4))
    run(spark, config, once=True)
    rows = rows_of(FILES)
    assert archived(spark, config) == sorted((r["key"], r["time_us"], r["v"]) for r in rows)

    for file in (tmp_path / "events").iterdir():
        file.unlink()
    there = sessions(spark, config)
    late = [(r["key"], r["time_us"]) for r in LATE]
    assert tally(there) == expected([r for r in rows if (r["key"], r["time_us"]) not in late])
    named = {"start_time": 60, "revision": there["wrong", 60]["revision"]}
    put = {"start_time": 58, "end_time": 63, "event_count": 9, "state": there["b", 48]["state"]}
    correct(spark, config, {"kind": "replace", "key": "wrong", "remove": [named], "put": [put]})
    run(spark, config, once=True)
    assert backfill(spark, config, from_us=EVER[0], to_us=EVER[1]).counts["corrections"] == 2
    run(spark, config, once=True)
    assert tally(sessions(spark, config)) == expected(rows)


@pytest.mark.slow
def test_switched_on_later_it_serves_what_came_later(spark: SparkSession, tmp_path: Path) -> None:
    before = config_of(tmp_path)
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": 0, "v": 1.0}])
    run(spark, before, once=True)
    write_rows(tmp_path, "1.json", [{"key": "b", "time_us": 500, "v": 1.0}])
    config = config_of(tmp_path, archive=True)
    run(spark, config, once=True)
    assert archived(spark, config) == [("b", 500, 1.0)]
    for file in (tmp_path / "events").iterdir():
        file.unlink()
    later = backfill(spark, config, from_us=400, to_us=600, dry_run=True).counts
    assert (later["sessions"], later["corrections"]) == (1, 0)
    with pytest.raises(SourceError, match=r"[01]\.json.*must still be there"):
        backfill(spark, config, from_us=0, to_us=100, dry_run=True)


def test_it_can_not_lie_where_the_source_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.archive: .* is both the source"):
        make_config(tmp_path, pipeline={"archive": True}, source={"path": "warehouse/events"})
    with pytest.raises(ConfigError, match=r"pipeline\.archive: .* is both the source"):
        make_config(tmp_path, pipeline={"archive": True}, source={"path": f"file://{tmp_path}/warehouse/events"})


@pytest.mark.slow
def test_compaction_trims_it_and_backfill_knows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, archive="all")
    write(tmp_path, range(4))
    run(spark, config, once=True)
    before, seen = archived(spark, config), find_archive(spark, config, incomplete=False)
    rows = seen.whole_rows().count()
    short = config.model_copy(update={"compact": CompactSection(archive="50 us")})
    kept = [row for row in before if row[1] >= 112 - 50]
    dry = compact(spark, short, dry_run=True)
    assert dry.counts["events_trimmed"] == len(before) - len(kept) > 0
    assert dry.notes[-1] == "would trim the archive before 1970-01-01T00:00:00.000062+00:00"
    with crash_at(monkeypatch, "compact_archive_marked"), pytest.raises(CrashError):
        compact(spark, short, run_id="r")
    assert compact(spark, short, run_id="r").counts["events_trimmed"] == dry.counts["events_trimmed"]
    assert archived(spark, config) == kept
    whole = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.SOURCE_ROWS].read()
    oldest = whole.agg(F.unix_micros(F.min("event_time")), F.count("*")).collect()[0]
    assert oldest[0] >= 112 - 50, "whole rows go, too"
    assert len(kept) <= oldest[1] < rows
    assert (seen.rows().count(), seen.whole_rows().count()) == (len(before), rows), "a job that began before sees all"
    assert backfill(spark, config, from_us=95, to_us=EVER[1], dry_run=True).counts["corrections"] == 0
    for file in (tmp_path / "events").iterdir():
        file.unlink()
    with pytest.raises(SourceError, match="must still be there"):
        backfill(spark, config, from_us=60, to_us=EVER[1], dry_run=True)
    write_rows(tmp_path, "4.json", [{"key": "b", "time_us": 115, "v": 1.0}])
    run(spark, config, once=True)
    assert archived(spark, config)[-1] == ("c", 100, 0.1)
    assert ("b", 115, 1.0) in archived(spark, config)
