"""Windows by time end to end: equal to DuckDB whatever the batches, shards and stores, late and dead events accounted for."""

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.observe.status import read_status
from sessionlake.operators.windows.spec import Grid
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after
from tests.operators.windows.window_support import (
    GRACE,
    KINDS,
    OFFSET,
    RETENTION,
    SIZE,
    UPDATES,
    Row,
    events,
    tables_of,
    window_config,
    windows,
)
from tests.oracle.windows import final_windows
from tests.support import write_rows


def paths_of(rows: DataFrame) -> list[str]:
    return [unquote(path.removeprefix("file://")) for path in rows.inputFiles()]


def advance_of(section: Any) -> int:
    return section.windows.advance_us if isinstance(section.windows, Grid) else SIZE


def judged(config: Config, files: list[list[Row]]) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return the accepted events, as the oracle wants them, and how many were late, partly late and dead."""
    section: Any = config.section
    size, advance, sliding = section.size_us, advance_of(section), section.kind == "sliding"
    accepted, counts, watermark = [], dict.fromkeys(("late", "partly_late", "dead"), 0), None
    for batch, rows in enumerate(files):
        close = None if watermark is None else watermark - GRACE
        times = []
        for row in rows:
            t = row["time_us"]
            first = t + 1 if sliding else -((OFFSET - (t - size + 1)) // advance) * advance + OFFSET + size
            last = t + size + 1 if sliding else (t - OFFSET) // advance * advance + OFFSET + size
            if watermark is not None and t < watermark - RETENTION:
                counts["dead"] += 1
            elif close is not None and last <= close:
                counts["late"] += 1
            else:
                counts["partly_late"] += close is not None and first <= close
                accepted.append((batch, row["key"], t, row["v"], close))
                times.append(t)
        watermark = max([*times, *([] if watermark is None else [watermark])])
    return accepted, counts


@pytest.mark.parametrize(
    ("kind", "emit"),
    [
        pytest.param("hopping", {}, marks=pytest.mark.slow),
        pytest.param("tumbling", UPDATES, marks=pytest.mark.slow),
        pytest.param("sliding", {}, marks=pytest.mark.slow),
        pytest.param("tumbling", {"early": "1 hour", "late": "close"}, marks=pytest.mark.slow),
        pytest.param("hopping", UPDATES, marks=pytest.mark.slow),
        pytest.param("sliding", UPDATES, marks=pytest.mark.slow),
    ],
)
def test_windows_equal_duckdbs_and_survive_the_loss_of_stores(
    spark: SparkSession, tmp_path: Path, kind: str, emit: Row
) -> None:
    config, files = window_config(tmp_path, emit=emit, **KINDS[kind]), events(1, 4, 40)
    committed: list[BatchCommit] = []
    for number, rows in enumerate(files):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, config, once=True, drain=number == 3, on_commit=committed.append)
        if number == 1:
            shutil.rmtree(config.driver_store_dir)
    accepted, counts = judged(config, files)
    section: Any = config.section
    with duckdb.connect() as db:
        db.execute('create table accepted (batch bigint, key varchar, time bigint, value bigint, "close" bigint)')
        db.executemany("insert into accepted values (?, ?, ?, ?, ?)", accepted)
        offset = 0 if kind == "sliding" else OFFSET
        found = final_windows(db, kind, SIZE, advance=advance_of(section), offset=offset)
    assert windows(spark, config) == found
    tables = tables_of(spark, config)
    sums = {name: sum(b.counts.get(name, 0) for b in committed) for name in (*schemas.COUNTS, "partly_late")}
    assert sums["input"] == sums["accepted"] + sums["late"] + sums["dead"] == 160
    assert {name: sums[name] for name in counts} == counts
    assert min(counts["late"], counts["dead"]) > 0
    late = tables[schemas.LATE_EVENTS].read()
    assert late.count() == counts["late"] + counts["partly_late"]
    assert late.where("partly").count() == counts["partly_late"]
    assert tables[schemas.DEAD_LETTERS].read().where("reason = 'beyond retention'").count() == counts["dead"]
    assert tables[schemas.EVENTS].read().count() == sums["accepted"] + sums["late"]
    assert any(batch.places.restored for batch in committed)
    changes = tables["window_changelog"].read()
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
        ({"retention": "5 us"}, r"window\.retention: '5 us' is shorter .* write '40 microseconds' or longer"),
        ({"sise": "1 s"}, r"window\.sise: is unknown \(did you mean 'size'\?\)"),
        ({"kind": "hopping"}, r"window\.advance: is missing"),
        (
            {"advance": "5 us"},
            r"window\.advance: is not used with kind = 'tumbling'; remove it, or write one of 'hopping'",
        ),
        ({"kind": "hopping", "advance": "11 us"}, r"window\.advance: '11 us' must be .* at most the size, '10 us'"),
        (
            {"kind": "hopping", "size": "1 s", "advance": "1 us"},
            r"window\.advance: .* 1000000 slices, 4096 are the most",
        ),
        ({"kind": "sliding"}, r"window\.offset: '3 us' does not go with sliding windows, .*; remove it"),
        ({"exits": False}, r"window\.exits: is not used with kind = 'tumbling'; remove it, or write one of 'sliding'"),
        ({"emit": {"early": "soon"}}, r"emit\.early: 'soon' is no policy; write 'off' or 'batch', or a period"),
        ({"emit": {"full": "close", "late": "batch"}}, r"emit\.late: 'batch' does not go with full = 'close'"),
        ({"emit": {"latee": "batch"}}, r"emit\.latee: is unknown \(did you mean 'late'\?\)"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, window: Row, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        window_config(tmp_path, **window)


def test_a_sliding_windows_offset_may_be_the_default_of_the_other_kinds(tmp_path: Path) -> None:
    configs = [window_config(tmp_path, kind="sliding", offset=offset) for offset in ("0 seconds", None)]
    assert len({str(config.section.bound_settings()) for config in configs}) == 1


@pytest.mark.slow
def test_an_idle_stream_sends_what_waits_for_a_period(spark: SparkSession, tmp_path: Path) -> None:
    config = window_config(tmp_path, emit={"early": "2 seconds", "late": "close"})
    config = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"trigger": "0 seconds"})})
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": 105, "v": 1}])
    committed: list[BatchCommit] = []

    def on_commit(batch: BatchCommit) -> None:
        committed.append(batch)
        if batch.counts.get("upserts"):
            for query in spark.streams.active:
                query.stop()

    run(spark, config, on_commit=on_commit)
    (row,) = tables_of(spark, config)["window_changelog"].read().collect()
    assert (row.window_key, row.event_count, row.trigger, row.batch_id) == ("a", 1, "early", committed[-1].batch_id)
    # One batch of the event, one of the tick; what is sent waits no longer.
    assert [batch.counts.get("input", 0) for batch in committed] == [1, 0]
    assert [batch.state["unsent_early"] for batch in committed] == [1, 0]


def test_what_is_older_than_the_newest_events_is_beyond_retention(spark: SparkSession, tmp_path: Path) -> None:
    """One is kept, with what lies in its stretch of ten: rule 103."""
    config = window_config(tmp_path, emit=UPDATES, size="10 us", offset="0 us", retention_count=1)
    for number, time in enumerate((205, 235, 240, 229, 206)):
        write_rows(tmp_path, f"{number}.json", [{"key": "a", "time_us": time, "v": 1}])
    summary = run(spark, config, once=True)
    # 229 comes when 235 and 240 are counted, but one batch before that holds; 206 comes after it.
    assert {name: summary.counts[name] for name in ("accepted", "late", "dead")} == {
        "accepted": 4,
        "late": 0,
        "dead": 1,
    }
    (dead,) = tables_of(spark, config)[schemas.DEAD_LETTERS].read().collect()
    assert (dead.reason, json.loads(dead.raw)["time_us"]) == ("beyond retention", 206)
    assert read_status(config).reconciles
    assert not [name for row in batches_after(tables_of(spark, config), -1) for name in row.counts if "cell" in name]


def test_only_windows_do_without_a_key(tmp_path: Path) -> None:
    config = window_config(tmp_path)
    raw = {**config.model_dump(include={"pipeline", "source"}), "event": {"time": "time_us"}}
    section = {"kind": "tumbling", "size": "1 hour", "retention": "1 day"}
    assert parse_config({**raw, "window": section}, tmp_path).event.key is None
    with pytest.raises(ConfigError, match=r"^event\.key: is missing; add it to the config"):
        parse_config({**raw, "session": {"gap": "1 s"}}, tmp_path)
    with pytest.raises(ConfigError, match=r"^ttl: goes with \[session\] or \[table\], and not with \[window\]; "):
        parse_config({**raw, "window": section, "ttl": {}}, tmp_path)


def test_a_pipeline_computes_one_thing(tmp_path: Path) -> None:
    config = window_config(tmp_path)
    raw = {"window": config.section.model_dump(exclude={"aggregates", "emit"}), "session": {"gap": "1 s"}}
    with pytest.raises(ConfigError, match=r"window: can't be used with \[session\]"):
        parse_config({**config.model_dump(include={"pipeline", "source", "event"}), **raw}, tmp_path)
