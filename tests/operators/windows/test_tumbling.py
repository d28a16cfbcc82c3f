"""Tumbling windows end to end: equal to DuckDB whatever the batches, shards and stores, late and dead events accounted for."""

import random
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.jobs.compact import compact
from sessionlake.observe.status import read_status
from sessionlake.operators.run import run
from sessionlake.operators.windows.kind import Windows
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.support import write_rows

Row = dict[str, Any]
SIZE, OFFSET, GRACE, RETENTION = 10, 3, 40, 60


def window_config(root: Path, *, shards: int = 2, **window: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    section = {"kind": "tumbling", "size": f"{SIZE} us", "offset": f"{OFFSET} us", "grace": f"{GRACE} us"}
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": shards, "archive": True},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "window": {**section, "retention_time": f"{RETENTION} us", **window},
        "aggregates": {"total": "sum(v)", "n": "count()"},
    }
    return parse_config(raw, root)


def events(seed: int, files: int, rows: int) -> list[list[Row]]:
    """Return files of events that go on in time, some far behind."""
    rng, found = random.Random(seed), []
    for number in range(files):
        times = [number * 12 + rng.choice([0, 3, 7, 12, -9, -25, -45, -80]) + 200 for _ in range(rows)]
        found.append([{"key": rng.choice("abc"), "time_us": t, "v": rng.randint(-5, 5)} for t in times])
    return found


def tables_of(spark: SparkSession, config: Config) -> Tables:
    return Tables(spark, config.pipeline.warehouse, Windows.changelog)


def paths_of(rows: DataFrame) -> list[str]:
    return [unquote(path.removeprefix("file://")) for path in rows.inputFiles()]


def windows(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    times = (F.unix_micros("window_start"), F.unix_micros("window_end"))
    rows = merged_rows(tables_of(spark, config)).select("window_key", *times, "event_count", "total", "n")
    return sorted(tuple(row) for row in rows.collect())


def expected(files: list[list[Row]]) -> tuple[list[tuple[Any, ...]], int, int]:
    """Return the windows of the accepted events by DuckDB, and how many events are late, and beyond retention."""
    accepted: list[Row] = []
    late = dead = 0
    watermark = None
    for rows in files:
        kept = []
        for row in rows:
            end = (row["time_us"] - OFFSET) // SIZE * SIZE + OFFSET + SIZE
            if watermark is not None and row["time_us"] < watermark - RETENTION:
                dead += 1
            elif watermark is not None and end <= watermark - GRACE:
                late += 1
            else:
                kept.append(row)
        accepted += kept
        watermark = max(
            [watermark, *(r["time_us"] for r in kept)] if watermark is not None else [r["time_us"] for r in kept]
        )
    with duckdb.connect() as db:
        db.execute("create table e (key varchar, t bigint, v bigint)")
        db.executemany("insert into e values (?, ?, ?)", [(r["key"], r["time_us"], r["v"]) for r in accepted])
        start = f"(floor((t - {OFFSET}) / {SIZE}) * {SIZE} + {OFFSET})::bigint"
        found = db.execute(
            f"select key, {start} as s, {start} + {SIZE}, count(*), sum(v)::bigint, count(*) from e group by all order by key, s"
        ).fetchall()
    return found, late, dead


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_windows_equal_duckdbs_and_survive_the_loss_of_stores(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    config, files = window_config(tmp_path, shards=seed + 1), events(seed, 4, 40)
    committed: list[BatchCommit] = []
    for number, rows in enumerate(files):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, config, once=True, on_commit=committed.append)
        if number == 1:
            shutil.rmtree(config.driver_store_dir)
    found, late, dead = expected(files)
    assert windows(spark, config) == found
    assert late > 0
    assert dead > 0
    tables, sums = (
        tables_of(spark, config),
        {name: sum(b.counts.get(name, 0) for b in committed) for name in schemas.COUNTS},
    )
    assert sums["input"] == sums["accepted"] + sums["late"] + sums["dead"] == 160
    assert (sums["late"], sums["dead"]) == (late, dead)
    assert tables.read(schemas.LATE_EVENTS).count() == late
    assert tables.read(schemas.DEAD_LETTERS).where("reason = 'beyond retention'").count() == dead
    assert tables.read(schemas.EVENTS).count() == sums["accepted"] + late
    assert len(committed[2].places.restored) > 0
    changes = tables.read("window_changelog")
    assert changes.where("trigger = 'late'").count() > 0
    ids = changes.where("window_id = xxhash64(window_key, window_start)").count()
    assert ids == changes.count() == sums["upserts"]
    with duckdb.connect() as db:
        probe = "select bool_and(bloom_filter_excludes) from parquet_bloom_probe(?, 'window_key', 'nobody')"
        assert all(db.execute(probe, [path]).fetchone() == (True,) for path in paths_of(changes))


@pytest.mark.parametrize(
    ("window", "told"),
    [
        ({"kind": "hoping"}, r"window\.kind: 'hoping' is not allowed"),
        ({"size": "0 s"}, r"window\.size: '0 s' must be longer than zero"),
        ({"retention_time": "5 us"}, r"window\.retention_time: '5 us' is shorter .* write '40us' or longer"),
        ({"sise": "1 s"}, r"window\.sise: is unknown \(did you mean 'size'\?\)"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, window: Row, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        window_config(tmp_path, **window)


def test_jobs_of_sessions_refuse_windows_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    config = window_config(tmp_path)
    for refused in (lambda: compact(spark, config), lambda: read_status(config)):
        with pytest.raises(ConfigError, match=r"^window: this is for pipelines of sessions"):
            refused()


def test_a_pipeline_computes_one_thing(tmp_path: Path) -> None:
    config = window_config(tmp_path)
    raw = {"window": config.section.model_dump(), "session": {"gap": "1 s"}}
    with pytest.raises(ConfigError, match=r"window: stands beside \[session\]"):
        parse_config({**config.model_dump(include={"pipeline", "source", "event"}), **raw}, tmp_path)
    with pytest.raises(ConfigError, match=r"window: this is for pipelines of sessions"):
        _ = config.gap_us
