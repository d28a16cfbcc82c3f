"""Rebuild from the archive, by DuckDB over the events: of other settings than before, killed on the way, and gone on from."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import tomli_w
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import read_sessions
from sessionlake.config.load import Config, load_config
from sessionlake.errors import JobError, PipelineStateError
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.rebuild import apply_switch, rebuild
from sessionlake.observe.status import read_status
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.oracle.sql import SqlOracle
from tests.support import write_rows

Row = dict[str, Any]
PIPELINE = {"name": "test", "warehouse": "old", "store": "store", "shards": 2, "archive": True}
SOURCE = {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1}
EVENT = {"key": "key", "time": "time_us", "time_unit": "us"}
SESSION = {"gap": "10 us", "grace": "5 us", "retention": "400 us"}


def write_config(root: Path, **sections: Row) -> Path:
    """Write a config of sections; `sections` are the operator's and what differs from the others."""
    path = root / "test.toml"
    operator = {} if {"window", "table", "process"} & sections.keys() else {"session": SESSION}
    (root / "events").mkdir(exist_ok=True)
    path.write_text(tomli_w.dumps({"pipeline": PIPELINE, "source": SOURCE, "event": EVENT, **operator, **sections}))
    return path


def events(seed: int, first: int, last: int, number: int = 40) -> list[Row]:
    draw = random.Random(seed)
    return [
        {"key": draw.choice("abc"), "other": draw.choice("xy"), "time_us": draw.randint(first, last), "v": float(i)}
        for i in range(number)
    ]


def run_files(spark: SparkSession, root: Path, path: Path, name: str, rows: list[Row]) -> Row:
    """Run a pipeline on one more file; return the run's counts."""
    write_rows(root, f"{name}.json", rows)
    return run(spark, load_config(path), once=True).counts


def sessions(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    times = [F.unix_micros(f"session_{edge}") for edge in ("start", "end")]
    rows = read_sessions(spark, config).select("session_key", *times, "event_count", "total")
    return sorted(tuple(row) for row in rows.collect())


def expected_sessions(rows: list[Row], gap: int, key: str = "key") -> list[tuple[Any, ...]]:
    found = SqlOracle().sessionize_events([{**row, "key": row[key], "id": None} for row in rows], gap)
    return sorted((r["key"], r["start_us"], r["end_us"], r["event_count"], r["total"]) for r in found)


def command(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    program = str(Path(sys.executable).with_name("sessionlake"))
    env = {**os.environ, **environment}
    return subprocess.run([program, *arguments], env=env, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.slow
def test_sessions_under_another_key_and_gap_go_on_without_the_old_files(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = {"total": "sum(v)", "others": "first(other)"}
    path = write_config(tmp_path, aggregates=aggregates)
    before = [events(1, 100, 200), events(2, 60, 260), events(3, 200, 300)]
    refused = [{"key": "a", "time_us": "soon"}, {"key": "", "time_us": 3}]
    # The first file alone gives the columns their types.
    for number, rows in enumerate(before):
        counts = run_files(spark, tmp_path, path, str(number), [*rows, *refused] if number else rows)
    assert sum(counts[name] for name in ("accepted", "late", "dead")) == counts["input"] == 42
    taken = [row for rows in before for row in rows]
    lost = load_config(path)
    assert Tables.of(spark, lost)[schemas.LATE_EVENTS].read().count() > 0, "the rebuild has to take these in"
    reprocess_late(spark, lost)
    run(spark, lost, once=True)
    for file in (tmp_path / "events").iterdir():
        file.unlink()

    write_config(tmp_path, aggregates=aggregates, event={**EVENT, "key": "other"}, session={**SESSION, "gap": "4 us"})
    summary, switch = rebuild(spark, path, "new", from_archive=True)
    assert (summary.counts["input"], summary.counts["accepted"], summary.counts["late"]) == (120, 120, 0)
    assert [text for text in summary.warnings if "restate" in text], summary.warnings
    apply_switch(path, switch)
    config = load_config(path)
    assert sessions(spark, config) == expected_sessions(taken, 4, "other")
    batch = Tables.of(spark, config)[schemas.CHANGELOG].last_commit()
    assert batch is not None
    assert batch.metadata["batch_id"] == 3

    since = events(4, 296, 330)
    assert run_files(spark, tmp_path, path, "since", since)["input"] == 40
    assert run(spark, config, once=True).batches == 0
    assert sessions(spark, config) == expected_sessions([*taken, *since], 4, "other")
    assert read_status(config).reconciles

    new = {**PIPELINE, "warehouse": "new"}
    write_config(tmp_path, pipeline=new, aggregates=aggregates, event={**EVENT, "key": "other"}, session=SESSION)
    again, switch = rebuild(spark, path, "newer", from_archive=True)
    assert again.counts["accepted"] == 160, "the archive of the new warehouse begins with its first batch"
    apply_switch(path, switch)
    assert sessions(spark, load_config(path)) == expected_sessions([*taken, *since], 10, "other")


@pytest.mark.slow
def test_windows_of_sessions_archive(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = {"total": "sum(v)"}
    path = write_config(tmp_path, aggregates=aggregates)
    rows = [*events(5, 100, 200), *events(6, 60, 260)]
    run_files(spark, tmp_path, path, "0", rows[:40])
    run_files(spark, tmp_path, path, "1", rows[40:])
    write_config(
        tmp_path,
        window={"kind": "tumbling", "size": "30 us", "grace": "40 us", "retention": "400 us"},
        emit={"early": "batch"},
        aggregates=aggregates,
    )
    _, switch = rebuild(spark, path, "new", from_archive=True)
    apply_switch(path, switch)
    since = events(7, 255, 300)
    run_files(spark, tmp_path, path, "2", since)
    config = load_config(path)
    names = "window_key", F.unix_micros("window_start"), "event_count", "total"
    found = merged_rows(Tables.of(spark, config)).select(*names).collect()
    given = pa.Table.from_pylist([*rows, *since])
    with duckdb.connect() as db:
        expected = db.register("given", given).execute(
            "select key, time_us // 30 * 30, count(*), sum(v) from given group by all order by all"
        )
        assert sorted(tuple(row) for row in found) == expected.fetchall()


@pytest.mark.slow
def test_a_table_has_the_latest_row_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    table = {"columns": ["v"], "retention": "400 us"}
    path = write_config(tmp_path, table={**table, "columns": ["v", "other"]})
    rows = [{**row, "time_us": 2 * row["time_us"] + i % 2} for i, row in enumerate(events(8, 100, 4000))]
    rows = list({(row["key"], row["time_us"]): row for row in rows}.values())
    run_files(spark, tmp_path, path, "0", rows[:20])
    run_files(spark, tmp_path, path, "1", rows[20:])
    write_config(tmp_path, table=table, event={**EVENT, "key": "other"})
    archived = Tables.of(spark, load_config(path))[schemas.EVENTS].read().count()
    summary, switch = rebuild(spark, path, "new", from_archive=True)
    assert summary.counts["accepted"] == archived
    apply_switch(path, switch)
    config = load_config(path)
    of = changelog_of(config)
    found = merged_rows(Tables.of(spark, config)).select(of.key, "v").collect()
    latest = {row["other"]: row["v"] for row in sorted(rows, key=lambda row: row["time_us"])}
    assert dict(tuple(row) for row in found) == latest


@pytest.mark.slow
def test_what_the_archive_lacks_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = {"total": "sum(v)"}
    path = write_config(tmp_path, pipeline={**PIPELINE, "archive": False}, aggregates=aggregates)

    def refused(message: str, **options: bool) -> None:
        with pytest.raises(JobError, match=message) as raised:
            rebuild(spark, path, "new", from_archive=True, **options)
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "new").exists()

    run_files(spark, tmp_path, path, "0", events(9, 100, 200))
    refused("has no archive")
    write_config(tmp_path, aggregates=aggregates)
    later = events(10, 200, 300)
    run_files(spark, tmp_path, path, "1", later)
    refused("the archive lacks the events of batch 0; .* or pass --from-what-is-there")
    write_config(tmp_path, aggregates={**aggregates, "others": "first(other)"})
    refused("does not have column 'other'", from_what_is_there=True)
    write_config(
        tmp_path,
        window={"by": "count", "kind": "tumbling", "size": 3, "retention_count": 9, "retention": "1 s"},
        aggregates=aggregates,
    )
    refused("depends on the order of messages", from_what_is_there=True)
    refused("does not go with --from-archive", from_topic=True)
    write_config(tmp_path, aggregates=aggregates)
    with pytest.raises(JobError, match="goes with --from-archive only"):
        rebuild(spark, path, "new", from_what_is_there=True)

    write_config(tmp_path, pipeline={**PIPELINE, "archive": False}, aggregates=aggregates)
    after = events(11, 300, 400)
    run_files(spark, tmp_path, path, "2", after)
    _, switch = rebuild(spark, path, "new", from_archive=True, from_what_is_there=True)
    apply_switch(path, switch)
    config = load_config(path)
    assert sessions(spark, config) == expected_sessions(later, 10)
    assert run(spark, config, once=True).counts["input"] == 40, "batch 2 was not archived, and is read again"
    assert sessions(spark, config) == expected_sessions([*later, *after], 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "in_project"),
    [
        ("rebuild_marked", False),
        ("rebuild_checkpoint_copied", True),
        ("before_changelog", False),
        ("after_changelog", True),
    ],
)
def test_a_killed_rebuild_is_started_again(
    spark: SparkSession, tmp_path: Path, point: str, *, in_project: bool
) -> None:
    """In a project the file has no line that names a warehouse, until the switch adds it."""
    sections: dict[str, Row] = {"aggregates": {"total": "sum(v)"}}
    if in_project:
        (tmp_path / "project.toml").touch()
        sections["pipeline"] = {key: value for key, value in PIPELINE.items() if key != "warehouse"}
    path = write_config(tmp_path, **sections)
    rows = [*events(12, 100, 200), *events(13, 60, 260)]
    run_files(spark, tmp_path, path, "0", rows[:40])
    run_files(spark, tmp_path, path, "1", rows[40:])
    write_config(tmp_path, **sections, session={**SESSION, "gap": "4 us"})
    call = ("rebuild", str(path), "--warehouse", "new", "--from-archive", "--switch")
    killed = command(*call, SESSIONLAKE_KILL_AT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    half = load_config(path)
    half = half.model_copy(update={"pipeline": half.pipeline.model_copy(update={"warehouse": str(tmp_path / "new")})})
    with pytest.raises(PipelineStateError, match="is half rebuilt; run `sessionlake rebuild --from-archive` again"):
        run(spark, half, once=True)
    done = command(*call)
    assert done.returncode == 0, done.stderr
    config = load_config(path)
    assert config.pipeline.warehouse.endswith("new")
    assert not (tmp_path / "new" / "_rebuilding").exists()
    assert sessions(spark, config) == expected_sessions(rows, 4)
    since = events(14, 256, 300)
    assert run_files(spark, tmp_path, path, "2", since)["input"] == 40
    assert sessions(spark, config) == expected_sessions([*rows, *since], 4)
