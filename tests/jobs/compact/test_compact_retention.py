"""What leaves the side tables with age: the sums that status checks hold before and after."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.jobs.compact import retention
from sessionlake.jobs.compact.upkeep import Upkeep
from sessionlake.jobs.run import _record
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.quality.context import remove_older
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.jobs.compact.compact_support import DAY, one_event, upkeep_of
from tests.support import write_rows


def later(upkeep: Upkeep, days: int) -> Upkeep:
    """Return the hold on the tables of a run that starts so many days from now."""
    upkeep.run = replace(upkeep.run, started_us=time.time_ns() // 1000 + days * DAY)
    return upkeep


def apply(upkeep: Upkeep, config: Config) -> None:
    for step in retention.steps(upkeep, config).values():
        step()


@pytest.mark.slow
def test_old_dead_letters_are_emptied_and_old_runs_go(spark: SparkSession, tmp_path: Path) -> None:
    config = one_event(spark, tmp_path)
    write_rows(tmp_path, "1.json", ["{broken", {"key": "late", "time_us": 1_000, "v": "no number"}])
    run(spark, config, once=True)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    tables[schemas.JOB_RUNS].create(schemas.JOB_RUNS_SCHEMA, "")
    for job in ("compact", "forget"):
        _record(tables, job, "old", "started", 0, {}, {}, None)
    before = read_status(config)
    assert before.reconciles
    dead = tables[schemas.DEAD_LETTERS].read().collect()
    assert all(row.raw for row in dead)

    apply(later(upkeep_of(spark, config), 364), config)
    assert tables[schemas.DEAD_LETTERS].read().collect() == dead
    assert {row.job for row in tables[schemas.JOB_RUNS].read().collect()} == {"forget"}

    apply(later(upkeep_of(spark, config), 366), config)
    emptied = tables[schemas.DEAD_LETTERS].read().collect()
    assert [(row.reason, row.source, row.batch_id) for row in emptied] == [
        (r.reason, r.source, r.batch_id) for r in dead
    ]
    assert not any(row.raw or row.key or row.event_time for row in emptied)
    after = read_status(config)
    assert (after.reconciles, after.counts) == (True, before.counts)
    version = tables[schemas.DEAD_LETTERS].latest_version()
    apply(later(upkeep_of(spark, config), 366), config)
    assert tables[schemas.DEAD_LETTERS].latest_version() == version


def test_old_results_and_their_pages_go_and_the_site_stays(tmp_path: Path) -> None:
    results = "gx/uncommitted/validations/sessions/run/1.json"
    page = "gx/uncommitted/data_docs/local_site/validations/sessions/run/1.html"
    style, suite = "gx/uncommitted/data_docs/local_site/static/style.css", "gx/expectations/sessions.json"
    for name in (results, page, style, suite, results.replace("1.", "2.")):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        os.utime(file, (100, 100))
    os.utime(tmp_path / results.replace("1.", "2."), (200, 200))
    remove_older(tmp_path, 150_000_000)
    left = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert left == {style, suite, results.replace("1.", "2.")}
