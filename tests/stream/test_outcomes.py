"""Each correction that a batch takes has one row in correction_outcomes, whatever became of it and wherever the driver dies."""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.observe.status import open_tables, read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError
from tests.support import correction_of, make_config, write_rows

Row = dict[str, Any]
FAR_US = 4_000_000_000_000_000
"""In the year 2096: further than a correction may move the watermark."""


@pytest.fixture(scope="module")
def corrected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, dict[str, Row]]:
    """A pipeline that has taken a correction of every fate, and these by their id, `told` what should become of each.

    The driver died before and after the commit of their outcomes.
    """
    root = tmp_path_factory.mktemp("outcomes")
    config = make_config(root, pipeline={"shards": 3})
    write_rows(root, "0.json", [{"key": key, "time_us": 100 + i, "v": i} for i, key in enumerate("abcdefg")])
    write_rows(root, "1.json", [{"key": "z", "time_us": 140, "v": 1}])
    run(spark, config, once=True)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    there = {row["session_key"]: row.asDict() for row in tables[schemas.CHANGELOG].read().collect()}
    sent = {row["correction_id"]: row for row in corrections(there)}
    rows = [{k: v for k, v in row.items() if k != "told"} for row in sent.values()]
    tables[schemas.CORRECTIONS].append_rows(pa.Table.from_pylist(rows, schema=schemas.CORRECTIONS_SCHEMA))
    with pytest.MonkeyPatch.context() as patch:
        for point in ("before_outcomes", "after_outcomes"):
            patch.setattr(failpoints, "hit", lambda name, point=point: _die(name == point))
            with pytest.raises(Exception, match="CrashError"):
                run(spark, config, once=True)
    run(spark, config, once=True)
    return config, sent


def _die(here: bool) -> None:  # noqa: FBT001
    if here:
        raise CrashError


def corrections(there: dict[str, Row]) -> list[Row]:
    """Return corrections of every kind for sessions that are there: applied, stale, expired, malformed and too far ahead."""

    def named(key: str, ago: int = 0) -> Row:
        return {"start_time": there[key]["session_start"], "revision": there[key]["revision"] + ago}

    def partial(key: str) -> Row:
        return correction_of(there[key], "session_start", "session_end", "event_count", "state")

    applied: tuple[str, str | None] = ("applied", None)
    malformed, stale = ("malformed", "malformed correction"), ("stale", "stale")
    rows: list[Row] = [
        {"kind": "tombstone", "key": "a", **named("a"), "told": applied},
        {"kind": "tombstone", "key": "b", **named("b", ago=7), "told": stale},
        {"kind": "tombstone", "key": "nobody", **named("b"), "told": stale},
        {"kind": "tombstone", "key": "b", "told": malformed},
        {"kind": "replace", "key": "c", "remove": [named("c")], "put": [partial("d")], "told": applied},
        {
            "kind": "replace",
            "key": "d",
            "remove": [named("d"), named("c")],
            "put": [partial("d")],
            "told": stale,
        },
        {"kind": "replace", "key": "e", "put": [partial("e")], "told": applied},
        {"kind": "restate", "key": "f", **partial("f"), "told": applied},
        {"kind": "restate", "key": "g", **partial("g"), "start_time": 79, "told": ("expired", "expired")},
        {"kind": "restate", "key": "g", **partial("g"), "state": None, "told": malformed},
        {"kind": "advance", "start_time": 150, "told": applied},
        {"kind": "advance", "start_time": FAR_US, "told": ("malformed", "too far in the future")},
        {"kind": "no such kind", "key": "a", "told": malformed},
        {"kind": None, "told": malformed},
    ]
    return [
        {"correction_id": f"c{i}", "job": "test", "run_id": f"r{i % 2}", "created_at": 0, **row}
        for i, row in enumerate(rows)
    ]


def test_every_correction_has_one_outcome(spark: SparkSession, corrected: tuple[Config, dict[str, Row]]) -> None:
    config, sent = corrected
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    rows = [row.asDict() for row in tables[schemas.CORRECTION_OUTCOMES].read().collect()]
    assert {r["correction_id"]: (r["outcome"], r["reason"]) for r in rows} == {c: r["told"] for c, r in sent.items()}
    assert len(rows) == len(sent)
    names = ("kind", "key", "event_count", "job", "run_id")
    assert {r["correction_id"]: [r[n] for n in names] for r in rows} == {
        c: [r.get(n) for n in names] for c, r in sent.items()
    }
    (batch,) = {row["batch_id"] for row in rows}
    counts = tables[schemas.BATCHES].read().where(F.col("batch_id") == batch).collect()[0].asDict()
    assert Counter(row["outcome"] for row in rows) == {
        name: counts[name] for name in (schemas.APPLIED, schemas.STALE, schemas.EXPIRED, schemas.MALFORMED)
    }
    assert counts["corrections"] == len(sent)
    # Dead letters are what they were before there was this table.
    dead = tables[schemas.DEAD_LETTERS].read().where("kind is null or kind <> 'event'").collect()
    assert {r["source"]: r["reason"] for r in dead} == {
        c: r["told"][1] for c, r in sent.items() if r["told"][1] is not None
    }


def test_outcomes_have_the_clock_that_was_logged_before_the_batch_died(
    spark: SparkSession, corrected: tuple[Config, dict[str, Row]]
) -> None:
    config, _ = corrected
    times = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.CORRECTION_OUTCOMES].read()
    (at,) = times.select("batch_id", F.unix_millis("at")).distinct().collect()
    logged = Path(config.checkpoint, "offsets", str(at[0])).read_text().splitlines()[1]
    assert at[1] == json.loads(logged)["batchTimestampMs"]


def test_which_of_my_corrections_took_effect(corrected: tuple[Config, dict[str, Row]]) -> None:
    config, sent = corrected
    wanted = Counter((row["run_id"], row["told"][0]) for row in sent.values())
    _, database = open_tables(config)
    with closing(database):
        found = database.execute("select run_id, outcome, count(*) from correction_outcomes group by all").fetchall()
    assert {(run_id, outcome): n for run_id, outcome, n in found} == wanted


@pytest.mark.slow
def test_restated_events_must_be_in_sessions_where_nothing_was_removed(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": 100, "v": 1}, {"key": "b", "time_us": 101, "v": 1}])
    run(spark, config, once=True)
    (row,) = tables[schemas.CHANGELOG].read().where("session_key = 'a'").collect()
    restate = correction_of(row.asDict(), "session_key", "session_start", "session_end", "event_count", "state")
    restate |= {"correction_id": "r", "kind": "restate", "state": bytes(row["state"])}

    def send() -> None:
        table = pa.Table.from_pylist([restate], schema=schemas.CORRECTIONS_SCHEMA)
        tables[schemas.CORRECTIONS].append_rows(table)

    send()
    # Whether it was read yet makes no difference: sessions are held against what batches took.
    assert read_status(config).reconciles
    run(spark, config, once=True)
    assert read_status(config).reconciles
    forged = {"correction_id": "f", "kind": "restate", "event_count": 1, "outcome": "applied", "batch_id": 1}
    table = pa.Table.from_pylist([forged], schema=schemas.CORRECTION_OUTCOMES_SCHEMA)
    version = tables[schemas.CORRECTION_OUTCOMES].latest_version()
    tables[schemas.CORRECTION_OUTCOMES].append_rows(table)
    assert read_status(config).reconciles, "an outcome that no batch counts makes the numbers unknown, not wrong"
    spark.sql(f"restore table {tables[schemas.CORRECTION_OUTCOMES].sql_name()} to version as of {version}")
    spark.sql(f"update {tables[schemas.CORRECTION_OUTCOMES].sql_name()} set event_count = 2")
    assert not read_status(config).reconciles
