"""Paths with all characters that one of Spark, Hadoop, Delta and deltalake takes for something else: run, jobs and readers."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.config.load import load_config
from sessionlake.errors import JobError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import publish
from sessionlake.jobs.rebuild import rebuild
from sessionlake.observe.status import read_status
from sessionlake.preflight.checks import problems_of_pipeline
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from sessionlake.warehouse.lake import opened
from tests.support import write_config, write_rows

BRACKETS, PERCENT = "a[1]{b,c}*?, #", "d%20\\[%2F]"
BESIDE = {BRACKETS: "a1bx, #", PERCENT: "d /[/]"}
"""The directories that would be read in place of these."""
ROWS = "select session_key, total, named from sessions_live order by all"


def told(root: Path) -> Path:
    """Write events and a table to look up, and other ones beside; return the config's path."""
    for below, key in ((root, "mine"), (root.parent / BESIDE[root.name], "another's")):
        for folder in ("events", "names[1]", "names1"):
            (below / folder).mkdir(parents=True)
        for folder in ("names[1]", "names1"):
            rows = [{"k": "mine", "named": folder}, {"k": "gone", "named": folder}]
            (below / folder / "0.json").write_text("\n".join(map(json.dumps, rows)))
        for number in range(2):
            write_rows(below, f"{number}.json", [{"key": k, "time_us": 1000 * number, "v": 1} for k in (key, "gone")])
    lookup = {"name": "names", "path": "names[1]", "format": "json", "on": ["key = k"], "columns": ["named"]}
    return write_config(
        root,
        pipeline={"archive": True},
        lookup=[lookup],
        aggregates={"total": "sum(v)", "named": "first(names_named)"},
        session={"gap": "1 us", "grace": "1 hour", "retention": "1 day"},
        sink={"delta": {"path": "plain[1]"}},
    )


def rows(*keys: str) -> list[tuple[Any, ...]]:
    return sorted((key, 1, "names[1]") for key in keys for _ in range(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", [BRACKETS, PERCENT])
def test_every_path_is_the_one_of_its_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    path = told(root)
    config = load_config(path)
    assert problems_of_pipeline(config) == []
    assert run(spark, config, once=True).counts["accepted"] == 4
    assert query_tables(config, ROWS, 100)[1] == rows("mine", "gone")
    before = backfill(spark, config, from_us=0, to_us=10**9, dry_run=True).counts
    assert before["sessions"] == before["unchanged"] == 4
    compact(spark, config)
    assert query_tables(config, ROWS, 100)[1] == rows("mine", "gone")
    assert read_status(config)
    assert publish(spark, config, once=True).steps == 1
    assert opened(str(root / "plain[1]")).to_pyarrow_table().num_rows == 4
    backup(spark, config, str(root / "copy[1]"))
    with pytest.raises(JobError, match="publish has not read the deletes yet"):
        forget(spark, config, ["gone"], wait="1 second")
    assert publish(spark, config, once=True).steps == 1
    report = forget(spark, config, ["gone"], wait="1 second")
    assert report.counts["found"] == 0
    assert opened(str(root / "plain[1]")).to_pyarrow_table().num_rows == 2
    assert query_tables(config, ROWS, 100)[1] == rows("mine")
    assert sorted(map(tuple, read_sessions(spark, config).select("session_key", "total", "named").collect())) == rows(
        "mine"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [BRACKETS, PERCENT])
def test_backups_and_archives_are_read_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    path = told(root)
    config = load_config(path)
    run(spark, config, once=True)
    backup(spark, config, str(root / "copy[1]"))
    path.write_text(path.read_text().replace('"warehouse"', '"restored{1}"'))
    restored = load_config(path)
    restore(spark, restored, str(root / "copy[1]"))
    write_rows(root, "2.json", [{"key": "mine", "time_us": 5000, "v": 1}])
    assert run(spark, restored, once=True).counts["accepted"] == 1
    assert query_tables(restored, ROWS, 100)[1] == sorted([*rows("mine", "gone"), rows("mine")[0]])
    for event in (root / "events").iterdir():
        event.unlink()
    rebuild(spark, path, "again*", from_archive=True)
    path.write_text(path.read_text().replace("restored{1}", "again*"))
    assert query_tables(load_config(path), ROWS, 100)[1] == sorted([*rows("mine", "gone"), rows("mine")[0]])
