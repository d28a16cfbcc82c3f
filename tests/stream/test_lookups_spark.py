"""Lookups on Spark: versions of tables, which one a batch reads, and jobs that read past batches again."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError, SourceError
from sessionlake.jobs.backfill.job import backfill
from sessionlake.jobs.forget.job import check, forget
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.preflight.check import check as preflight
from sessionlake.serve.queries import query_tables
from sessionlake.sources.lookups.lookup import version_of
from sessionlake.sources.lookups.readers import FilesReader
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, crashes
from tests.operator_forms import LookedUpSessionLake
from tests.support import make_config, write_rows

SECOND_US = 1_000_000
LOOKUP = {"name": "users", "path": "users", "on": "key = id", "columns": ["plan"]}
SESSION = {"gap": "10 us", "grace": "1 hour", "retention": "2 hours"}


def looked_up(root: Path, *, path: str = "users", **lookup: Any) -> Config:
    """Return a pipeline of sessions that collect a column of another table."""
    lookups: Any = [{**LOOKUP, "path": path, **lookup}]
    return make_config(root, session=SESSION, aggregates={"plans": "collect_set(users_plan, 9)"}, lookup=lookups)


def make(root: Path, **lookup: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    return looked_up(root, **lookup)


def set_users(root: Path, *rows: dict[str, Any]) -> None:
    write_deltalake(str(root / "users"), pa.Table.from_pylist(list(rows)), mode="overwrite", schema_mode="overwrite")


def sessions(config: Config, columns: str = "session_key, plans") -> list[Any]:
    return sorted(query_tables(config, f"select {columns} from sessions_live", 1000)[1])


def versions(spark: SparkSession, config: Config) -> dict[str, str]:
    """Return the version of each table that the last batch has read."""
    pins = last_batch(Tables.of(spark, config)).pins
    return {name: file.split("-")[1] for name, file in pins.items()}


def click(key: str, time_us: int, **more: Any) -> dict[str, Any]:
    return {"key": key, "time_us": time_us, "v": 1, **more}


@pytest.mark.slow
@pytest.mark.parametrize("half_done", [False, True])
def test_a_batch_whose_side_rows_are_committed_reads_its_version_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, half_done: bool
) -> None:
    lake = LookedUpSessionLake(tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    crashes(spark, lake, monkeypatch, "before_changelog" if half_done else "computed")
    lake.add_version()
    # Even if its file is gone, the version is still in the table's log.
    shutil.rmtree(lake.warehouse / "_lookups")
    run(spark, lake.config, once=True)
    read = [commit["pins"]["people"].split("-")[1] for commit in lake.commits()]
    assert read == ["0" if half_done else "1", *["1"] * (len(FIRST) - 1)]
    counts = lake.commits()[0]["counts"]
    assert counts["found:people"] > 0
    assert bool(counts["missing:people"]) is half_done


@pytest.mark.slow
def test_versions_follow_the_table_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path)
    set_users(tmp_path, {"id": "a", "plan": "free"})
    write_rows(tmp_path, "1.json", [click("a", 0), click("b", 0)])
    run(spark, config, once=True)
    assert sessions(config) == [("a", ["free"]), ("b", [])]
    set_users(tmp_path, {"id": "a", "plan": "pro"}, {"id": "b", "plan": "free"})
    write_rows(tmp_path, "2.json", [click("a", 5), click("b", 5)])
    run(spark, config, once=True)
    # An event is looked up once: the first ones keep what they got.
    assert sessions(config) == [("a", ["free", "pro"]), ("b", ["free"])]
    assert versions(spark, config) == {"users": "1"}
    status = read_status(config)
    assert status.reconciles
    assert [(one.name, one.version, one.found, one.missing, one.refused) for one in status.lookups] == [
        ("users", "1", 2, 0, None)
    ]
    # A backfill reads the files again, and finds each event's row in the version of its batch.
    assert backfill(spark, config, from_us=0, to_us=1_000).counts["corrections"] == 0


@pytest.mark.slow
def test_a_version_that_must_not_be_used_is_told_and_the_one_before_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = make(tmp_path)
    set_users(tmp_path, {"id": "a", "plan": "free"}, {"id": "a", "plan": "pro"})
    write_rows(tmp_path, "1.json", [click("a", 0)])
    told = r"^lookup\.users\.path: version 0 of '.*/users' has 1 row with the key of another row; mend the table"
    with pytest.raises(SourceError, match=told):
        run(spark, config, once=True)
    assert not (tmp_path / "warehouse" / schemas.CHANGELOG / "_delta_log" / "00000000000000000001.json").exists()
    set_users(tmp_path, {"id": "a", "plan": "free"})
    run(spark, config, once=True)
    set_users(tmp_path, {"id": "a", "plan": "free"}, {"id": "a", "plan": "pro"})
    write_rows(tmp_path, "2.json", [click("a", 5)])
    run(spark, config, once=True)
    assert versions(spark, config) == {"users": "1"}
    (state,) = read_status(config).lookups
    assert state.refused == "version 2 has 1 row with the key of another row"
    set_users(tmp_path, {"id": "a", "plan": "pro"})
    write_rows(tmp_path, "3.json", [click("a", 9)])
    run(spark, config, once=True)
    assert (versions(spark, config), sessions(config)) == ({"users": "3"}, [("a", ["free", "pro"])])
    # Of another type than the first batch's.
    write_deltalake(
        str(tmp_path / "users"), pa.table({"id": ["a"], "plan": [7]}), mode="overwrite", schema_mode="overwrite"
    )
    write_rows(tmp_path, "4.json", [click("a", 12)])
    run(spark, config, once=True)
    assert read_status(config).lookups[0].refused == "version 4 has column 'plan' as long, and it was string"
    shutil.rmtree(tmp_path / "users")
    write_rows(tmp_path, "5.json", [click("a", 15)])
    with pytest.raises(
        SourceError, match=r"^lookup\.users\.path: '.*/users' is no readable Delta table; create it or "
    ):
        run(spark, config, once=True)


def test_files_are_read_as_a_source_of_them_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path, format="csv", on="v = id", columns=["plan", "since"], types={"since": "date"})
    config.section.aggregates["newest"] = "max(users_since)"
    (tmp_path / "users").mkdir()
    file = tmp_path / "users" / "1.csv"
    file.write_text('id,plan,since\n1,"a, b",2026-01-01\n2,,\n')
    write_rows(tmp_path, "1.json", [click("a", 0), {**click("b", 0), "v": 2}, {**click("c", 0), "v": 3}])
    run(spark, config, once=True)
    assert sessions(config) == [("a", ["a, b"]), ("b", []), ("c", [])]
    before = versions(spark, config)
    file.write_text("id,plan,since\n1,x,2026-01-01\n2,y,soon\n")
    os.utime(file, (1, 1))
    write_rows(tmp_path, "2.json", [click("a", 5)])
    run(spark, config, once=True)
    assert versions(spark, config) == before
    (state,) = read_status(config).lookups
    assert state.refused is not None
    assert f"has rows that can't be read, the first at {file}:3" in state.refused


@pytest.mark.slow
def test_files_that_change_while_they_are_read_are_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users").mkdir()
    config = make(tmp_path, path=(tmp_path / "users").as_uri(), format="csv")
    file = tmp_path / "users" / "1.csv"
    file.write_text("id,plan\na,half")
    write_rows(tmp_path, "1.json", [click("a", 0)])
    real = FilesReader.rows

    def rows(self: FilesReader, *args: Any) -> Any:
        found = real(self, *args)
        if file.read_text() != "id,plan\na,half written\n":
            file.write_text("id,plan\na,half written\n")
        return found

    monkeypatch.setattr(FilesReader, "rows", rows)
    run(spark, config, once=True)
    assert sessions(config) == [("a", ["half written"])]
    (made,) = (tmp_path / "warehouse" / "_lookups" / "users").glob("*.arrow")
    monkeypatch.undo()
    write_rows(tmp_path, "2.json", [click("a", 5)])
    run(spark, config, once=True)
    assert last_batch(Tables.of(spark, config)).pins == {"users": made.name}
    file.unlink()
    write_rows(tmp_path, "3.json", [click("a", 9)])
    with pytest.raises(SourceError, match=r"^lookup\.users\.path: '.*/users' holds no csv files"):
        run(spark, config, once=True)


@pytest.mark.slow
def test_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path)
    schema = pa.schema([("id", pa.string()), ("plan", pa.string())])
    write_deltalake(str(tmp_path / "users"), schema.empty_table())
    write_rows(tmp_path, "1.json", [click("a", 0)])
    summary = run(spark, config, once=True)
    assert sessions(config) == [("a", [])]
    told = "none of 1 events found a row in lookup 'users'; compare its columns of `on`, key, with the table's"
    assert told in summary.warnings


class DoneError(Exception):
    """Ends a stream."""


@pytest.mark.slow
def test_a_running_stream_takes_a_newer_version(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path, refresh="1 second")
    set_users(tmp_path, {"id": "a", "plan": "free"})
    write_rows(tmp_path, "1.json", [click("a", 0)])
    deadline = time.monotonic() + 120

    def go_on(batch: Any) -> None:
        assert time.monotonic() < deadline
        version = batch.pins["users"].split("-")[1]
        if version == "1":
            raise DoneError
        if batch.batch_id == 0:
            set_users(tmp_path, {"id": "a", "plan": "pro"})
        write_rows(tmp_path, f"{batch.batch_id + 2}.json", [click("a", batch.batch_id)])

    with pytest.raises(Exception, match="DoneError"):
        run(
            spark,
            config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"trigger": "1 second"})}),
            on_commit=go_on,
        )


@pytest.mark.slow
def test_lookups_are_added_and_removed_between_batches_and_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    set_users(tmp_path, {"id": "a", "plan": "free", "old": "z"})
    plain = make_config(tmp_path, session=SESSION, aggregates={"n": "count()"})
    write_rows(tmp_path, "1.json", [click("a", 0)])
    run(spark, plain, once=True)
    config = looked_up(tmp_path)
    config = config.model_copy(
        update={"section": config.section.model_copy(update={"aggregates": {"n": "count()", **config.aggregates}})}
    )
    write_rows(tmp_path, "2.json", [click("a", 5), click("b", 0)])
    run(spark, config, once=True)
    assert sessions(config, "session_key, n, plans") == [("a", 2, None), ("b", 1, [])]
    other = config.model_copy(update={"lookup": [config.lookup[0].model_copy(update={"on": "key = old"})]})
    with pytest.raises(PipelineStateError, match=r"^lookup\.users\.on: changed from \[\['key', 'id'\]\] to"):
        run(spark, other, once=True)
    write_rows(tmp_path, "3.json", [click("b", 5)])
    run(spark, plain, once=True, drop_aggregates=True)
    assert last_batch(Tables.of(spark, plain)).pins == {}


@pytest.mark.slow
def test_versions_of_before_a_column_or_a_path_was_changed_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path)
    for number, city in enumerate(({}, {"city": "Ulm"})):
        set_users(tmp_path, {"id": "a", "plan": "free", **city})
        write_rows(tmp_path, f"{number}.json", [click("a", 100 * number)])
        run(spark, config, once=True)
    (users,) = set(DeltaTable(tmp_path / "users").file_uris())
    more = looked_up(tmp_path, columns=["plan", "city"])
    more.section.aggregates["cities"] = "collect_set(users_city, 9)"
    set_users(tmp_path, {"id": "a", "plan": "pro", "city": "Bonn"})
    write_rows(tmp_path, "2.json", [click("a", 1_000)])
    run(spark, more, once=True)
    # The files of the first batches lack the city. That of version 1 is made again, and version 0 has none itself.
    assert backfill(spark, more, from_us=0, to_us=2_000).counts["corrections"] == 2
    run(spark, more, once=True)
    found = [("a", ["free"], []), ("a", ["free"], ["Ulm"]), ("a", ["pro"], ["Bonn"])]
    assert sessions(more, "session_key, plans, cities") == found
    # Another table has a version 0, too, and it is another one.
    shutil.rmtree(tmp_path / "warehouse" / "_lookups")
    Path(users).unlink()
    with pytest.raises(
        SourceError, match=r"^lookup\.users\.path: version 1 of '.*/users' can't be read; see Spark's log"
    ):
        backfill(spark, more, from_us=50, to_us=500)
    write_deltalake(str(tmp_path / "clients"), pa.table({"id": ["a"], "plan": ["other"], "city": ["other"]}))
    other = looked_up(tmp_path, path="clients", columns=["plan", "city"])
    other.section.aggregates.update(more.section.aggregates)
    with pytest.raises(
        SourceError, match=r"^lookup\.users\.path: version [012] of '.*/clients' is not the one that a batch has"
    ):
        backfill(spark, other, from_us=0, to_us=1_500)


@pytest.mark.slow
def test_what_is_looked_up_is_part_of_late_and_archived_events_and_redeemed_ones_find_the_newest(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = make(tmp_path, missing="dead_letter")
    config = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"archive": True})})
    hour = 3600 * SECOND_US
    set_users(tmp_path, {"id": "a", "plan": "free"})
    write_rows(tmp_path, "1.json", [click("a", 2 * hour), click("b", 2 * hour)])
    run(spark, config, once=True)
    write_rows(tmp_path, "2.json", [click("a", hour // 2)])
    run(spark, config, once=True)
    events = "select key, event.users_plan from {} order by all"
    assert query_tables(config, events.format("late_events"), 10)[1] == [("a", "free")]
    assert query_tables(config, events.format("events"), 10)[1] == [("a", "free"), ("a", "free")]
    # As long as there is no row, a scheduled run leaves the letter for the next one.
    too_early = redeem(spark, config, reasons=["no row in users"]).counts
    assert (too_early["refused"], too_early["redeemed"]) == (1, 0)
    set_users(tmp_path, {"id": "a", "plan": "gone"}, {"id": "b", "plan": "pro"})
    report = redeem(spark, config, reasons=["no row in users"])
    assert report.counts["redeemed"] == 1
    run(spark, config, once=True)
    assert ("b", ["pro"]) in sessions(config)
    assert read_status(config).reconciles


@pytest.mark.slow
def test_forget_removes_the_versions_that_hold_the_key(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path)
    set_users(tmp_path, {"id": "a", "plan": "free"}, {"id": "never came", "plan": "pro"})
    write_rows(tmp_path, "1.json", [click("a", 0)])
    run(spark, config, once=True)
    assert check(spark, config, ["never came"]).places == {"versions of tables that are looked up": 1}
    set_users(tmp_path, {"id": "a", "plan": "free"})
    report = forget(spark, config, ["never came"])
    assert (report.failed, report.counts["lookups"], report.counts["found"]) == (False, 1, 0)
    write_rows(tmp_path, "2.json", [click("a", 5)])
    run(spark, config, once=True)
    assert check(spark, config, ["never came"]).clean


@pytest.mark.slow
def test_forget_removes_what_lookups_of_before_and_killed_tasks_have_left(spark: SparkSession, tmp_path: Path) -> None:
    config = make(tmp_path, on=["key = id", "v = number"])
    set_users(tmp_path, {"id": "never came", "number": 1, "plan": "pro"})
    write_rows(tmp_path, "1.json", [click("a", 0)])
    run(spark, config, once=True)
    versions = tmp_path / "warehouse" / "_lookups"
    shutil.copytree(versions / "users", versions / "lookup_of_before")
    (versions / "users" / "1.arrow.5c1f.tmp").write_bytes(b"never came")
    set_users(tmp_path, {"id": "a", "number": 1, "plan": "pro"})
    assert check(spark, config, ["never came"]).places == {"versions of tables that are looked up": 2}
    report = forget(spark, config, ["never came"])
    assert (report.failed, report.counts["lookups"], report.counts["found"]) == (False, 2, 0)
    assert [path for path in versions.rglob("*") if path.is_file()] == []


def test_rows_valid_at_the_events_time_beside_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([None, 20, 40, 10, 30], pa.timestamp("us", "UTC"))
    table = pa.table({"id": ["a", "a", "a", "b", "b"], "plan": ["1", "2", "3", "4", "5"], "since": times})
    write_deltalake(str(tmp_path / "users"), table)
    config = make(tmp_path, as_of="event_time", valid_from="since")
    config = config.model_copy(update={"section": config.section.model_copy(update={"gap": "1 us"})})
    rows = [click(key, at) for key in "abc" for at in range(0, 50, 5)]
    write_rows(tmp_path, "1.json", rows)
    run(spark, config, once=True)
    with duckdb.connect() as database:
        database.register("users", table)
        database.register("events", pa.Table.from_pylist(rows))
        joined = database.execute(
            "select key, time_us, plan from events asof left join (select id, plan, coalesce(epoch_us(since), -1) as t from users) u "
            "on key = id and time_us >= t"
        ).fetchall()
    expected = sorted((key, at, [] if plan is None else [plan]) for key, at, plan in joined)
    assert sessions(config, "session_key, epoch_us(session_start), plans") == expected


def problems(config: Config) -> Sequence[str]:
    return [str(problem) for problem in preflight(config).problems]


def test_check_tells_what_is_wrong_with_a_table_before_java_starts(tmp_path: Path) -> None:
    config = make(tmp_path, columns=["plan", "tags", "name"], on="v = ident")
    write_rows(tmp_path, "1.json", [click("a", 0)])
    (missing,) = problems(config)
    assert missing.startswith("lookup.users.path: ")
    assert "is no readable Delta table" in missing
    table = pa.table({"id": ["a"], "plan": ["free"], "tags": [["x"]]})
    write_deltalake(str(tmp_path / "users"), table)
    place = str(tmp_path / "users")
    assert problems(config) == [
        f"lookup.users.on: 'ident' is no column of {place!r}; write one of id, plan, tags",
        f"lookup.users.columns: 'name' is no column of {place!r}; write one of id, plan, tags",
        "lookup.users.columns: 'tags' is list<element: string>, and events have texts, numbers, times, dates, true and false; leave it out",
    ]
    (wrong,) = problems(make(tmp_path, on="who = id"))
    assert wrong.startswith("lookup.users.on: 'who' is no column of ")
    assert DeltaTable(place).version() == 0
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.slow
def test_a_stream_leaves_versions_for_a_day_that_a_backfill_has_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessionlake.sources.lookups.versions.KEPT", 1)
    config, folder = make(tmp_path), tmp_path / "warehouse" / "_lookups" / "users"

    def next_batch(number: int) -> None:
        set_users(tmp_path, {"id": "a", "plan": str(number)})
        write_rows(tmp_path, f"{number}.json", [click("a", number)])
        run(spark, config, once=True)

    def there() -> list[int]:
        return sorted(int(version_of(file.name)) for file in folder.glob("*.arrow"))

    for number in range(3):
        next_batch(number)
    assert there() == [2]
    assert backfill(spark, config, from_us=0, to_us=1_000).counts["corrections"] == 0
    assert there() == [0, 1, 2]
    next_batch(3)
    assert there() == [0, 1, 3]
    for mark in folder.glob("*.again"):
        mark.write_text("1")
    next_batch(4)
    assert there() == [4]
    assert list(folder.glob("*.again")) == []
