"""Dead letters of a pipeline in which each event counts once: a redeemed event is remembered like any other (docs/rules.md, rule 226)."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import JobError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.window_support import window_config
from tests.support import make_config, write_rows

MINUTE = 60_000_000
HOUR = 60 * MINUTE
FUTURE, WRONG = "too far in the future", "null or empty id"
SESSION = {"gap": "10 minutes", "grace": "1 hour", "retention": "2 days"}
WINDOW = {"size": "10 minutes", "offset": "0 us", "grace": "1 hour", "retention": "2 days"}


def config_of(root: Path, operator: str, skew: str) -> Config:
    sections: dict[str, Any] = {
        "event": {"id": "id", "unique_for": "12 hours", "max_future_skew": skew},
        "pipeline": {"archive": True},
    }
    if operator == "session":
        return make_config(root, session=SESSION, **sections)
    return window_config(root, window=WINDOW, emit={"early": "batch", "late": "batch"}, **sections)


def event(key: str, time_us: int, id_: str | None) -> dict[str, Any]:
    return {"key": key, "time_us": time_us, "id": id_, "v": 1}


def counts(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    """Return key, the hour of the start after the first one, and events."""
    tables = Tables.of(spark, config)
    of = tables.changelog
    rows = merged_rows(tables).select(of.key, F.unix_micros(of.start), "event_count").collect()
    first = min(row[1] for row in rows)
    return sorted((row[0], (row[1] - first + 11 * MINUTE) // HOUR, row[2]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["session", "window"])
def test_a_redeemed_event_is_remembered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    strict, mended = (config_of(tmp_path, operator, skew) for skew in ("1 minute", "4 hours"))
    now = time.time_ns() // 1000
    now -= now % (10 * MINUTE)

    def batch(number: int, config: Config, rows: Sequence[dict[str, Any]]) -> None:
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, config, once=True)

    x, y = event("a", now + HOUR, "x"), event("a", now + HOUR, "y")
    batch(0, strict, [event("a", now, "w"), x, x, y, event("b", now + HOUR, "x"), event("c", now, "")])
    with crash_at(monkeypatch, "redeem_before_corrections"), pytest.raises(CrashError):
        redeem(spark, mended, reasons=[FUTURE], run_id="killed")
    found = redeem(spark, mended, reasons=[FUTURE, WRONG]).counts
    assert (found["dead_letters"], found["redeemed"], found["duplicates"], found["refused"]) == (5, 3, 1, 1)
    # A sender's retry of one comes in the batch that takes the corrections, and that of another one later.
    shutil.rmtree(tmp_path / "store")
    batch(1, mended, [x, event("b", now + HOUR, "z")])
    batch(2, mended, [y, x])
    assert counts(spark, mended) == [("a", 0, 1), ("a", 1, 2), ("b", 1, 2)]
    status = read_status(mended)
    assert status.reconciles
    tables = Tables.of(spark, mended)
    ids = tables[schemas.EVENT_IDS].read()
    assert ids.count() == ids.dropDuplicates(["key", "event_time", "id_hash"]).count() == 5
    assert tables[schemas.DUPLICATES].read().count() == 3

    # A copy that is refused, and redeemed after its event was taken, changes nothing.
    batch(3, strict, [event("a", now + 2 * HOUR, "v"), event("d", now, "u")])
    batch(4, mended, [event("a", now + 2 * HOUR, "v")])
    before = counts(spark, mended)
    assert redeem(spark, mended, reasons=[FUTURE]).counts["redeemed"] == 1
    assert apply_corrections(spark, mended)
    assert counts(spark, mended) == before
    told = tables[schemas.CORRECTION_OUTCOMES].read().where("outcome = 'stale'").select("reason").collect()
    assert [row.reason for row in told] == ["duplicate"]
    report = run_quality(spark, mended)
    assert report.counts["failed_critical"] == 0, report.notes
    assert backfill(spark, mended, from_us=now - HOUR, to_us=now + 3 * HOUR, dry_run=True).counts["corrections"] == 0


@pytest.mark.slow
def test_a_letter_that_is_too_old_to_know_stays_dead(spark: SparkSession, tmp_path: Path) -> None:
    config = config_of(tmp_path, "session", "4 hours")
    now = time.time_ns() // 1000
    rows = [event("a", now - 13 * HOUR, "x"), event("a", now - 11 * HOUR, "y"), event("a", now, "z")]
    write_rows(tmp_path, "0.json", [{**row, "key": None} for row in rows[:2]] + rows[2:])
    run(spark, config, once=True)
    letters = Tables.of(spark, config)[schemas.DEAD_LETTERS]
    spark.sql(f'update delta.`{letters.uri}` set raw = replace(raw, \'"key": null\', \'"key": "a"\')')
    found = redeem(spark, config, reasons=["null key"]).counts
    assert (found["redeemed"], found["refused"]) == (1, 1)
    assert apply_corrections(spark, config)
    assert counts(spark, config) == [("a", 0, 1), ("a", 11, 1)]


@pytest.mark.slow
def test_a_stream_that_has_not_taken_the_setting_yet(spark: SparkSession, tmp_path: Path) -> None:
    """Its corrections would name no event, and be compared with none."""
    config = config_of(tmp_path, "session", "4 hours")
    before = config.model_copy(update={"event": config.event.model_copy(update={"unique_for": None})})
    now = time.time_ns() // 1000
    write_rows(tmp_path, "0.json", [event("a", now, "x"), {**event("a", now, "y"), "key": None}])
    run(spark, before, once=True)
    with pytest.raises(JobError, match=r"^event\.unique_for: is new, and the stream has not taken it; "):
        redeem(spark, config, reasons=["null key"])
    write_rows(tmp_path, "1.json", [event("a", now, "z")])
    run(spark, config, once=True)
    assert redeem(spark, config, reasons=["null key"]).counts["refused"] == 1
