"""Late events of windows handed in again: every event within retention is in all its windows then, partly late ones too."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.observe.status import read_status
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.views import merged_rows
from tests.jobs.window_support import Row, hopping_config, run_files, tables_of, window_config

SIZE, OFFSET, RETENTION = 10, 3, 60


def contents(spark: SparkSession, config: Any, first: int) -> list[Row]:
    """Return key, start, events and total of the windows that begin at or after a time, as they were sent last."""
    start = F.unix_micros("window_start")
    rows = merged_rows(tables_of(spark, config)).where(start >= first)
    return sorted(tuple(row) for row in rows.select("window_key", start, "event_count", "total").collect())


def of_all_events(root: Path, advance: int, first: int) -> list[Row]:
    """Return the same of all events, by DuckDB over the files."""
    with duckdb.connect() as db:
        return db.execute(
            f"""
            with e as (select key, time_us as t, v from read_json_auto('{root}/events/*.json')),
            held as (select key, v, unnest(generate_series(t - ((t - {OFFSET}) % {advance}), t - {SIZE} + 1, -{advance})) as s from e)
            select key, s, count(*), sum(v)::bigint from held where s >= {first} group by all order by all
            """
        ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "advance"), [(hopping_config, 5), (window_config, 10)])
def test_all_events_in_retention_are_in_all_their_windows(
    spark: SparkSession, tmp_path: Path, make: Any, advance: int
) -> None:
    config = make(tmp_path)
    run_files(spark, tmp_path, config, range(4))
    before = read_status(config)
    assert before.late.waiting == before.late.events > 0
    assert before.watermark_us is not None
    # A slice has the length of the advance; one that begins before it is beyond retention.
    oldest = before.watermark_us - RETENTION
    late = tables_of(spark, config)[schemas.LATE_EVENTS].read()
    assert contents(spark, config, oldest) != of_all_events(tmp_path, advance, oldest)
    report = reprocess_late(spark, config)
    slices = F.unix_micros("event_time") - F.pmod(F.unix_micros("event_time") - OFFSET, F.lit(advance))
    partly = late.where("partly").where(slices >= oldest).count()
    assert report.counts["partly_late"] == partly
    assert (advance == SIZE) == (partly == 0)
    run(spark, config, once=True, drain=True)
    assert contents(spark, config, oldest) == of_all_events(tmp_path, advance, oldest)
    status = read_status(config)
    assert status.late.waiting == 0
    assert status.late.reconciles
    assert report.counts["restated"] > 0
    assert run_quality(spark, config, only=["events"], dry_run=True).counts["failed_critical"] == 0
    triggers = tables_of(spark, config)["window_changelog"].read().where("trigger = 'restate'").count()
    assert triggers > 0
    again = reprocess_late(spark, config)
    assert (again.counts["restated"], again.counts["corrections"]) == (0, 0)
