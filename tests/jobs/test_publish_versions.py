"""The table of [sink.delta] with `history`: each version of a row, compared with copies of the live view that were made after each batch."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError, JobError, PipelineStateError
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import publish
from sessionlake.jobs.publish.table import SinkTable
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, SECOND, CrashError, crash_at, run_once
from tests.jobs.publish_support import trim, vacuum_changes, with_sink
from tests.operator_lake import OperatorLake
from tests.operators_table import LAKES
from tests.support import make_config, write_rows

Rows = dict[tuple[str, ...], tuple[str, ...]]
"""Rows by identity, each value as a text."""


def step(spark: SparkSession, config: Config, *, anew: bool = False) -> Any:
    return SinkTable(Tables.of(spark, config), config).step(anew=anew)


def shown(relation: duckdb.DuckDBPyRelation, names: list[str], identity: tuple[str, ...]) -> Rows:
    rows = relation.select(*(f'"{name}"' for name in names)).fetchall()
    found = {}
    for row in rows:
        texts = {name: str(value) for name, value in zip(names, row, strict=True)}
        key = tuple(texts[name] for name in identity)
        assert key not in found
        found[key] = tuple(texts.values())
    return found


def live(config: Config) -> tuple[list[str], Rows]:
    relation = sessionlake.read(config)
    names = [name for name in relation.columns if name not in {"state", "final"}]
    return names, shown(relation, names, changelog_of(config).identity)


def versions(config: Config, where: str) -> duckdb.DuckDBPyRelation:
    assert config.sink.delta is not None
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection.from_arrow(deltalake.DeltaTable(config.sink.delta.path).to_pyarrow_table()).filter(where)


def held(config: Config, names: list[str], at: datetime | None = None) -> Rows:
    """Return the rows that hold at a time; without one now."""
    text = f"timestamptz '{at}'"
    where = "valid_to is null" if at is None else f"valid_from <= {text} and (valid_to is null or valid_to > {text})"
    return shown(versions(config, where), names, changelog_of(config).identity)


def assert_whole(config: Config) -> None:
    """Check that the versions of each row follow one another without overlap."""
    identity = ", ".join(changelog_of(config).identity)
    rows = versions(config, "true")
    assert rows.filter("valid_to <= valid_from").fetchall() == []
    follows = f"lead(valid_from) over (partition by {identity} order by valid_from)"
    ends = rows.project(f"valid_to, {follows} as next")
    assert ends.filter("next is not null and (valid_to is null or valid_to > next)").fetchall() == []


def committed_at(config: Config) -> datetime:
    last = find_last_batch(Lake.of(config))
    assert last is not None
    return datetime.fromtimestamp(last.committed_us / 1e6, UTC)


def with_history(lake: OperatorLake) -> Config:
    return with_sink(lake, "[sink.delta]\npath = 'out'\nhistory = true\nemit = 'changes'")


@pytest.mark.slow
@pytest.mark.parametrize("name", LAKES)
def test_versions_of_every_operator(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake = LAKES[name](tmp_path / "lake", tmp_path / "events")
    config = with_history(lake)
    by_event = changelog_of(config).began is not None
    copies = dict[datetime, Rows]()
    names: list[str] = []
    for number, files in enumerate((FIRST, SECOND)):
        for file in files:  # several batches lie between two steps
            lake.write_files([file])
            run_once(spark, lake)
            names, copies[committed_at(config)] = live(config)
        with crash_at(monkeypatch, "sink_read"), pytest.raises(CrashError):
            step(spark, config)
        with crash_at(monkeypatch, "sunk"), pytest.raises(CrashError):
            step(spark, config)
        assert step(spark, config) is None
        assert held(config, names) == live(config)[1]
        assert_whole(config)
        if number == 0:
            first_step = max(copies)
            trim(spark, lake.config)
            lake.correct(spark)
    if not by_event:
        # The first step loads the rows as they are then: of earlier batches it has what still holds.
        for at, rows in copies.items():
            if at >= first_step:
                assert held(config, names, at) == rows


def table(root: Path, columns: Sequence[str] = ("v",)) -> Config:
    (root / "events").mkdir(parents=True, exist_ok=True)
    raw = {
        "pipeline": {"name": "plans", "warehouse": "warehouse", "shards": 2},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "table": {"columns": list(columns), "retention": "1 day"},
        "expire": {"max_share": 1.0},
        "compact": {"safety": "0 seconds"},
        "sink": {"delta": {"path": "out", "history": True}},
    }
    return parse_config(raw, root)


def ran(spark: SparkSession, config: Config, name: str, *rows: tuple[str, int, int]) -> None:
    events = [{"key": key, "time_us": second * 1_000_000, "v": v} for key, second, v in rows]
    write_rows(Path(config.directory), name, events)
    run(spark, config, once=True)


def listed(config: Config) -> list[tuple[Any, ...]]:
    rows = versions(config, "true").project("table_key, v, epoch(valid_from)::int, epoch(valid_to)::int")
    return sorted(rows.fetchall(), key=lambda row: (row[0], row[2]))


def test_rows_of_a_table_hold_from_their_events_on(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path)
    ran(spark, config, "a.json", ("ann", 100, 1), ("bob", 100, 1))
    assert step(spark, config).rows is None
    ran(spark, config, "b.json", ("ann", 200, 2))
    ran(spark, config, "c.json", ("ann", 300, 3), ("bob", 90, 9), ("cid", 50, 5))
    done = step(spark, config)
    assert (done.rows, done.deleted) == (3, 1)
    # The event of 90 was superseded before it came.
    assert listed(config) == [
        ("ann", 1, 100, 200),
        ("ann", 2, 200, 300),
        ("ann", 3, 300, None),
        ("bob", 1, 100, None),
        ("cid", 5, 50, None),
    ]


@pytest.mark.slow
def test_an_update_of_the_same_time_takes_the_versions_place(spark: SparkSession, tmp_path: Path) -> None:
    """That version never held."""
    config = table(tmp_path)
    ran(spark, config, "a.json", ("ann", 100, 1))
    step(spark, config)
    ran(spark, config, "b.json", ("ann", 300, 3))
    step(spark, config)
    ran(spark, config, "c.json", ("ann", 300, 4))
    step(spark, config)
    assert listed(config) == [("ann", 1, 100, 300), ("ann", 4, 300, None)]
    # So does the last of two of one time that come in one step.
    ran(spark, config, "d.json", ("ann", 400, 5))
    ran(spark, config, "e.json", ("ann", 400, 6))
    step(spark, config)
    assert listed(config) == [("ann", 1, 100, 300), ("ann", 4, 300, 400), ("ann", 6, 400, None)]


@pytest.mark.slow
def test_a_time_that_goes_back_ends_no_version_before_it_began(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path)
    ran(spark, config, "a.json", ("ann", 100, 1))
    step(spark, config)
    ran(spark, config, "b.json", ("ann", 200, 2), ("ann", 150, 7))
    step(spark, config)
    assert listed(config) == [("ann", 1, 100, 200), ("ann", 2, 200, None)]
    assert_whole(config)


@pytest.mark.slow
def test_a_row_that_comes_back_holds_after_it_went(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path)
    ran(spark, config, "a.json", ("ann", 100, 1))
    step(spark, config)
    # The row goes now, by the clock: later events of an earlier time make it anew from then on.
    expire(spark, config, where="table_key = 'ann'")
    run(spark, config, once=True)
    step(spark, config)
    ran(spark, config, "b.json", ("ann", 200, 2))
    step(spark, config)
    rows = listed(config)
    assert [row[1] for row in rows] == [1, 2]
    assert rows[0][3] == rows[1][2]
    assert_whole(config)


@pytest.mark.slow
def test_columns_may_be_called_as_ours_are(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path, columns=["_at", "_first", "`a.b`"])
    for number in range(3):
        row = {
            "key": "ann",
            "time_us": (100 + number) * 1_000_000,
            "_at": number,
            "_first": number,
            "a.b": number,
        }
        write_rows(tmp_path, f"{number}.json", [row])
        run(spark, config, once=True)
        assert step(spark, config, anew=number == 1) is not None
    found = versions(config, "true").project('_at, _first, "a.b", valid_to is null').fetchall()
    assert sorted(found) == [(number, number, number, number == 2) for number in range(3)]


@pytest.mark.slow
def test_a_lookup_finds_the_version_of_the_time(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path / "plans")
    ran(spark, config, "a.json", ("ann", 100, 1))
    step(spark, config)
    ran(spark, config, "b.json", ("ann", 200, 2))
    step(spark, config)
    lookup = {
        "name": "plan",
        "path": str(tmp_path / "plans" / "out"),
        "on": "key = table_key",
        "columns": ["v"],
        "as_of": "event_time",
        "valid_from": "valid_from",
        "valid_to": "valid_to",
    }
    (tmp_path / "clicks").mkdir()
    clicks = make_config(tmp_path / "clicks", lookup=[lookup], aggregates={"plan": "last(plan_v)"})
    ran(spark, clicks, "c.json", ("ann", 99, 0), ("ann", 150 + 5000, 0), ("ann", 199, 0))
    rows = sessionlake.read(clicks).project("epoch(session_start)::int, plan").fetchall()
    assert sorted(rows) == [(99, None), (199, 1), (5150, 2)]


@pytest.mark.slow
def test_lost_changes_and_another_load_keep_what_is_known(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path)
    ran(spark, config, "a.json", ("ann", 100, 1), ("bob", 100, 1))
    step(spark, config)
    before = listed(config)
    assert step(spark, config, anew=True) is not None
    assert listed(config) == before
    for number in range(3):
        ran(spark, config, f"{number}.json", ("ann", 200 + number, 2 + number))
    trim(spark, config)
    vacuum_changes(config)
    step(spark, config)
    assert listed(config) == [("ann", 1, 100, 202), ("ann", 4, 202, None), ("bob", 1, 100, None)]
    off = config.model_copy(
        update={
            "sink": config.sink.model_copy(
                update={"delta": config.sink.delta and config.sink.delta.model_copy(update={"history": False})}
            )
        }
    )
    with pytest.raises(
        PipelineStateError,
        match=r"^sink.delta.history: is false, and .* has the rows of 'history'; .*; its versions are lost then$",
    ):
        step(spark, off)


@pytest.mark.slow
def test_forget_removes_the_versions_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    config = table(tmp_path)
    ran(spark, config, "a.json", ("ann", 100, 1), ("bob", 100, 1))
    step(spark, config)
    ran(spark, config, "b.json", ("ann", 200, 2), ("bob", 200, 2))
    step(spark, config)
    with pytest.raises(JobError, match="publish has not read the deletes yet"):
        forget(spark, config, ["ann"])
    step(spark, config)
    assert forget(spark, config, ["ann"]).counts["found"] == 0
    assert [row[0] for row in listed(config)] == ["bob", "bob"]
    # The next step goes on.
    ran(spark, config, "c.json", ("bob", 300, 3))
    assert publish(spark, config, once=True).steps == 1
    assert listed(config)[-1] == ("bob", 3, 300, None)


def test_rows_that_are_final_have_no_versions(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^sink.delta.history: is of rows that change, and those that are final do not"
    ):
        make_config(tmp_path, sink={"delta": {"path": "out", "history": True, "emit": "final"}})
