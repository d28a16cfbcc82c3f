"""Whole rows in the archive: a rebuild from them is a fresh run of the new config over the same input."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import tomli_w
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.config.load import Config, load_config
from sessionlake.errors import JobError
from sessionlake.jobs.forget.job import forget
from sessionlake.jobs.rebuild import apply_switch, rebuild
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.support import write_rows

Row = dict[str, Any]
PIPELINE = {"name": "test", "warehouse": "old", "store": "store", "shards": 2, "archive": "all"}
SESSION = {"gap": "10 us", "grace": "5 us", "retention": "400 us"}
BEFORE: dict[str, Row] = {
    "event": {"key": "key", "time": "time_us", "time_unit": "us", "where": "v > 20 and kind <> 'x'"},
    "session": SESSION,
    "aggregates": {"total": "sum(v)"},
}
AFTER: dict[str, Row] = {
    "event": {
        "key": "other",
        "time": "time_us",
        "time_unit": "us",
        "where": "kind = 'x' or v > 35",
        "columns": {"twice": "2 * price"},
    },
    "session": {**SESSION, "gap": "4 us"},
    "aggregates": {"total": "sum(v)", "spent": "sum(twice)", "kinds": "approx_count_distinct(kind)"},
}
COUNTED = ("input", "accepted", "late", "dead", "dropped", "filtered", "duplicate")


def write_config(root: Path, source: Row, sections: dict[str, Row], **more: Row) -> Path:
    path = root / "test.toml"
    (root / "events").mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps({"pipeline": PIPELINE, "source": source, **sections, **more}))
    return path


def rows_of(seed: int, first: int, last: int, number: int = 60) -> list[Row]:
    """Return rows of which some have no key, no value or no kind; `odd` is of no use to anybody."""
    draw = random.Random(seed)
    return [
        {
            "key": draw.choice(["a", "b", "c", None]),
            "other": draw.choice("xyz"),
            "time_us": draw.randint(first, last),
            "v": draw.choice([float(i), None]),
            "kind": draw.choice(["x", "y", None]),
            "price": draw.choice([i * 0.1, None]),
            "odd": draw.choice(['a "quoted"\ttext', "\u00fc, and a comma", None]),
        }
        for i in range(number)
    ]


def put(spark: SparkSession, root: Path, format_: str, number: int, rows: list[Row]) -> None:
    """Add a batch's rows to a source."""
    schema = pa.schema(
        [(n, pa.string()) for n in ("key", "other", "kind", "odd")]
        + [("time_us", pa.int64()), ("v", pa.float64()), ("price", pa.float64())]
    )
    table, file = pa.Table.from_pylist(rows, schema), root / "events" / f"{number}.{format_}"
    if format_ == "json":
        write_rows(root, file.name, [*rows, '{"key": "a", "time_us": "soon", "v": "wrong"}', "{"])
    elif format_ == "csv":
        pcsv.write_csv(table, file)
    elif format_ == "parquet":
        pq.write_table(table, file)
    else:
        spark.createDataFrame(
            table.to_pandas().astype(object).where(lambda f: f.notna(), None),
            "key string, other string, kind string, odd string, time_us long, v double, price double",
        ).write.format("delta").mode("append").save(str(root / "events"))


def source_of(format_: str, **types: str) -> Row:
    if format_ == "delta":
        return {"kind": "delta", "path": "events"}
    plain = {"kind": "files", "path": "events", "format": format_, "max_files_per_batch": 1}
    return plain if format_ == "parquet" else {**plain, "types": {"time_us": "long", "v": "double", **types}}


def sessions(spark: SparkSession, config: Config) -> list[str]:
    """Return the sessions, sums rounded: their order of addition is another one."""
    found = read_sessions(spark, config).select(
        "session_key", "session_start", "session_end", "event_count", "total", "spent", "kinds"
    )
    return sorted(
        repr([round(value, 6) if isinstance(value, float) else value for value in row]) for row in found.collect()
    )


def reconciles(counts: Row) -> bool:
    return counts["input"] == sum(counts[name] for name in COUNTED[1:])


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "csv", "parquet", "delta"])
def test_it_is_a_fresh_run_of_the_new_config(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    old, other = tmp_path / "a", tmp_path / "b"
    path = write_config(old, source_of(format_), BEFORE)
    batches = [rows_of(1, 100, 200), rows_of(2, 150, 300)]
    for number, rows in enumerate(batches):
        put(spark, old, format_, number, rows)
        counts = run(spark, load_config(path), once=True).counts
        assert reconciles(counts), counts
    assert counts["filtered"] > 0
    shutil.copytree(old / "events", other / "events")
    types = {} if format_ in ("parquet", "delta") else {"other": "string", "price": "double", "kind": "string"}
    if types:
        # Nothing but the archive has the rows.
        for file in (old / "events").iterdir():
            file.unlink()
    write_config(old, source_of(format_, **types), AFTER)
    summary, switch = rebuild(spark, path, "new", from_archive=True)
    apply_switch(path, switch)
    fresh = load_config(write_config(other, source_of(format_, **types), AFTER))
    expected = run(spark, fresh, bootstrap=True).counts
    unread = 2 if format_ == "json" else 0
    assert summary.counts == {**expected, **{name: expected[name] - unread for name in ("input", "dead")}}
    assert not [text for text in summary.warnings if "where" in text], summary.warnings
    found = sessions(spark, load_config(path))
    assert found
    assert found == sessions(spark, fresh)
    since = rows_of(3, 290, 330)
    for root in (old, other):
        put(spark, root, format_, 2, since)
        write = load_config(root / "test.toml")
        assert reconciles(run(spark, write, once=True).counts)
    assert sessions(spark, load_config(path)) == sessions(spark, fresh)


@pytest.mark.slow
def test_whole_rows_begin_with_the_setting_and_forget_finds_them(spark: SparkSession, tmp_path: Path) -> None:
    path = write_config(tmp_path, source_of("json"), BEFORE, pipeline={**PIPELINE, "archive": True})
    put(spark, tmp_path, "json", 0, rows_of(4, 100, 200))
    run(spark, load_config(path), once=True)
    config = load_config(path)
    assert not Tables.of(spark, config)[schemas.SOURCE_ROWS].exists()
    write_config(tmp_path, source_of("json"), BEFORE)
    put(spark, tmp_path, "json", 1, [*rows_of(5, 200, 300), {"key": "gone", "time_us": 222, "v": 1, "odd": "secret"}])
    config = load_config(path)
    counts = run(spark, config, once=True).counts
    table = Tables.of(spark, config)[schemas.SOURCE_ROWS]
    assert table.read().count() == counts["input"] - 1, "all but the line that is no JSON"
    assert table.read().where("raw like '%secret%'").count() == 1
    write_config(tmp_path, source_of("json"), AFTER)
    with pytest.raises(JobError, match="does not have column 'other'"):
        rebuild(spark, path, "new", from_archive=True)
    write_config(tmp_path, source_of("json"), {**BEFORE, "event": {**BEFORE["event"], "where": "v > 1"}})
    summary, _ = rebuild(spark, path, "new", from_archive=True)
    assert "whole rows are kept from batch 1 on, and events from batch 0 on" in "\n".join(summary.warnings)

    report = forget(spark, load_config(path), ["gone"], wait="1 second")
    assert report.counts["found"] == 0, report
    assert table.read().where("raw like '%secret%'").isEmpty()
    assert table.read().count() == counts["input"] - 2


@pytest.mark.slow
def test_an_interrupted_batch_keeps_rows_as_it_began(spark: SparkSession, tmp_path: Path) -> None:
    path = write_config(tmp_path, source_of("parquet"), BEFORE)
    for number in (0, 1):
        put(spark, tmp_path, "parquet", number, rows_of(6 + number, 100, 200))
        if not number:
            run(spark, load_config(path), once=True)
    program = str(Path(sys.executable).with_name("sessionlake"))
    killed = subprocess.run(
        [program, "run", str(path), "--once"],
        env={**os.environ, "SESSIONLAKE_KILL_AT": "after_whole"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    write_config(tmp_path, source_of("parquet"), BEFORE, pipeline={**PIPELINE, "archive": False})
    config = load_config(path)
    assert run(spark, config, once=True).counts["input"] == 60
    tables = Tables.of(spark, config)
    assert tables[schemas.SOURCE_ROWS].read().groupBy("batch_id").count().orderBy("batch_id").collect() == [
        (0, 60),
        (1, 60),
    ]
    assert tables[schemas.EVENTS].read().where("batch_id = 1").count() > 0, "the batch has its own setting"
    write_config(tmp_path, source_of("parquet"), AFTER)
    summary, _ = rebuild(spark, path, "new", from_archive=True)
    assert summary.counts["input"] == 120
