"""The table of [sink.postgres] equals the live view as of a batch, in a real PostgreSQL, whatever is killed, cut off or dropped."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import sessionlake
from infra.postgres.server import Server, find_server
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, JobError, PipelineStateError, UnreachableError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import database as module
from sessionlake.jobs.publish import publish, sinks_of
from sessionlake.jobs.publish.database import PostgresTable
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.database_position import position_in_database
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, SECOND, CrashError, crash_at, run_once
from tests.jobs.publish_support import assert_publish_killed, publish_once, publish_until, with_sink
from tests.operator_lake import OperatorLake
from tests.operators_table import LAKES
from tests.support import make_config, write_rows

pytestmark = pytest.mark.skipif(find_server() is None, reason="no PostgreSQL server on this machine")
UNSEEN = {"state", "final"}
"""Columns of a live view that the table has not."""
POINTS = ("database_read", "database_copied", "database_moved", "database_done")
Rows = Counter[tuple[Any, ...]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("postgres")) as started:
        yield started


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> str:
    """Return the URL of a database of the test's own."""
    name = f"t{abs(hash(request.node.nodeid))}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return server.url.replace("/postgres?", f"/{name}?")


def query(url: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        connection.execute("set time zone 'UTC'")
        return connection.execute(text).fetchall()


def plain(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=str)
    return value.timestamp() if isinstance(value, datetime) else value


def step(spark: SparkSession, config: Config, *, anew: bool = False) -> module.Step | None:
    return PostgresTable(Tables.of(spark, config), config).step(anew=anew)


def assert_equal(config: Config, url: str) -> Rows:
    """Check that the table is the live view, read by DuckDB, and that it names the last batch."""
    live = sessionlake.read(config)
    names = [name for name in live.columns if name not in UNSEEN]
    shown = ", ".join(f'"{name}"' for name in names)
    table = config.sink.postgres.table if config.sink.postgres else ""
    found = Counter(tuple(map(plain, row)) for row in query(url, f"select {shown} from {table}"))
    assert found == Counter(tuple(map(plain, row)) for row in live.select(shown).fetchall())
    last = find_last_batch(Lake.of(config))
    assert last is not None
    schema = f"{table.rpartition('.')[0] or 'public'}"
    at = query(url, f"select batch_id from {schema}.sessionlake_positions where table_name = '{table}'")
    assert at == [(last.batch_id,)]
    assert not query(url, "select tablename from pg_tables where tablename like 'sessionlake\\_step%'")
    return found


def in_database(lake: OperatorLake, url: str) -> Config:
    return with_sink(lake, f"[sink.postgres]\nurl = '{url}'\ntable = 'public.results'")


@pytest.mark.slow
@pytest.mark.parametrize("name", LAKES)
def test_the_table_is_the_live_view(
    spark: SparkSession, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake = LAKES[name](tmp_path / "lake", tmp_path / "events")
    config = in_database(lake, url)
    changed = 0
    for number, files in enumerate((FIRST, SECOND)):
        lake.write_files(files)
        run_once(spark, lake)
        for point in POINTS[:3]:
            with crash_at(monkeypatch, point), pytest.raises(CrashError):
                step(spark, config)
            found = position_in_database(config)
            assert (0 if found is None else found.step) == number
        with crash_at(monkeypatch, "database_done"), pytest.raises(CrashError):
            step(spark, config)
        # The step was made, though the process that made it did not live to know.
        assert step(spark, config) is None
        changed += len(assert_equal(config, url))
        if number == 0:
            compact(spark, lake.config)
            lake.correct(spark)
    assert changed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigkill_at_each_point_and_in_the_middle_of_a_copy(
    spark: SparkSession, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LAKES["session"](tmp_path / "lake", tmp_path / "events")
    config = in_database(lake, url)
    path = lake.root / "sink.toml"
    lake.write_files(FIRST)
    run_once(spark, lake)
    for point in POINTS[:3]:
        assert_publish_killed(path, point)
        assert position_in_database(config) is None
    assert_publish_killed(path, POINTS[3])
    assert "0 steps" in publish_once(path).stdout
    lake.correct(spark)
    lake.write_files(SECOND)
    run_once(spark, lake)
    steps = "select tablename from pg_tables where tablename like 'sessionlake\\_step%'"
    left = {*query(url, steps)}
    assert len(left) == 2, "a process that is killed can't drop the table of its step"
    assert publish_until(path, lambda: {*query(url, steps)} > left)
    monkeypatch.setattr(module, "_KEPT_S", -1)
    step(spark, config)
    assert_equal(config, url)


def small(root: Path, url: str, **sections: Any) -> Config:
    root.mkdir(exist_ok=True)
    session = {"gap": "10 seconds", "grace": "1 minute", "retention": "1 hour"}
    sink = {"postgres": {"url": url, "table": "sessions"}}
    return make_config(root, **{"session": session, "sink": sink, **sections})


def ran(spark: SparkSession, config: Config, name: str, *rows: tuple[str, int]) -> None:
    """Run a batch of events."""
    events = [{"key": key, "time_us": second * 1_000_000, "v": 1} for key, second in rows]
    write_rows(Path(config.directory), name, events)
    run(spark, config, once=True)


def test_steps_add_change_and_delete_rows(spark: SparkSession, tmp_path: Path, url: str) -> None:
    config = small(tmp_path, url)
    ran(spark, config, "a", ("ann", 100), ("bob", 100), ("bob", 115), ("o'b\"r,\n", 100), ("", 1))
    made = publish(spark, config, once=True)
    assert (made.steps, made.batches) == (1, 0)
    assert sum(assert_equal(config, url).values()) == 4
    assert step(spark, config) is None
    # Bob's two sessions become one, and Ann's grows.
    ran(spark, config, "b", ("bob", 108), ("ann", 101))
    assert step(spark, config) == module.Step(1, 2, 1)
    assert sum(assert_equal(config, url).values()) == 3
    ((kind,),) = query(url, "select pg_typeof(session_start)::text from sessions limit 1")
    assert kind == "timestamp with time zone"


@pytest.mark.slow
def test_a_database_that_is_killed_or_gone_is_one_line_and_the_next_run_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path / "pg")
    with server:
        config = small(tmp_path / "lake", server.url)
        ran(spark, config, "a", ("ann", 100), ("bob", 100))
        for point in POINTS[1:3]:
            with crash_at(monkeypatch, point, action=server.kill), pytest.raises(UnreachableError) as caught:
                step(spark, config)
            assert "can't be reached" in str(caught.value)
            assert "\n" not in str(caught.value)
            with pytest.raises(UnreachableError, match=r"^sink\.postgres: 'sessions' can't be reached"):
                step(spark, config)
            server.start()
            assert position_in_database(config) is None
        step(spark, config)
        rows = query(server.url, "select session_key from sessions order by 1")
        assert rows == [("ann",), ("bob",)]


@pytest.mark.slow
def test_a_dropped_table_is_loaded_again_and_another_ones_is_refused(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    config = small(tmp_path, url)
    ran(spark, config, "a", ("ann", 100))
    step(spark, config)
    with psycopg.connect(url) as connection:
        connection.execute("drop table sessions")
    ran(spark, config, "b", ("bob", 100))
    assert step(spark, config) == module.Step(1, None, 0)
    assert sum(assert_equal(config, url).values()) == 2
    other = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"name": "other"})})
    with pytest.raises(
        ConfigError, match=r"^sink\.postgres\.table: 'sessions' is the table of pipeline '.*'; write another name$"
    ):
        step(spark, other)
    with psycopg.connect(url) as connection:
        connection.execute("create table mine (a int)")
    mine = small(tmp_path, url, sink={"postgres": {"url": url, "table": "mine"}})
    with pytest.raises(ConfigError, match="'mine' is a table that publish has not made; rename it"):
        step(spark, mine)
    nowhere = small(tmp_path, url, sink={"postgres": {"url": url, "table": "nowhere.sessions"}})
    with pytest.raises(
        JobError, match=r"^sink\.postgres: 'nowhere.sessions' can't be written \(schema \"nowhere\" does not exist\)$"
    ):
        step(spark, nowhere)


@pytest.mark.slow
def test_of_two_that_make_a_step_at_once_one_does(
    spark: SparkSession, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path, url)
    ran(spark, config, "a", ("ann", 100))
    with crash_at(monkeypatch, "database_copied", action=lambda: step(spark, config)):
        assert step(spark, config) is None
    ran(spark, config, "b", ("bob", 100))
    table = PostgresTable(Tables.of(spark, config), config)

    def ahead() -> None:
        step(spark, config)
        ran(spark, config, "c", ("eve", 100))

    with crash_at(monkeypatch, "database_copied", action=ahead):
        assert table.step() is None
    step(spark, config)
    assert sum(assert_equal(config, url).values()) == 3


def test_what_the_database_can_not_store_is_left_out_and_told(
    spark: SparkSession, tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(tmp_path, url)
    ran(spark, config, "a", ("a\0b", 100), ("k" * 3000, 100), ("ann", 100))
    step(spark, config)
    assert query(url, "select session_key from sessions") == [("ann",)]
    assert "2 rows are left out" in caplog.text


@pytest.mark.slow
def test_another_pipeline_needs_resync_and_gets_it(spark: SparkSession, tmp_path: Path, url: str) -> None:
    config = small(tmp_path / "one", url)
    ran(spark, config, "a", ("ann", 100))
    step(spark, config)
    rebuilt = small(tmp_path / "two", url)
    ran(spark, rebuilt, "a", ("bob", 100))
    with pytest.raises(PipelineStateError, match=r"'sessions' has the rows of another .*--resync`$"):
        step(spark, rebuilt)
    assert step(spark, rebuilt, anew=True) == module.Step(0, None, 0)
    assert query(url, "select session_key from sessions") == [("bob",)]
    assert_equal(rebuilt, url)


@pytest.mark.slow
def test_forget_waits_for_the_step_and_proves_that_the_rows_are_gone(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    config = small(tmp_path, url)
    ran(spark, config, "a", ("ann", 100), ("bob", 100))
    step(spark, config)
    with pytest.raises(JobError, match="publish has not read the deletes yet"):
        forget(spark, config, ["ann"])
    step(spark, config)
    report = forget(spark, config, ["ann"])
    assert report.counts["found"] == 0
    assert query(url, "select session_key from sessions") == [("bob",)]


def test_the_secret_is_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONS_DB", "postgresql://me:hunter22@127.0.0.1:1/none")
    config = small(tmp_path, "${env:SESSIONS_DB}")
    with pytest.raises(UnreachableError) as caught:
        position_in_database(config)
    assert "hunter22" not in str(caught.value)
    assert sinks_of(config) == ["postgres"]


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ({"url": "mysql://h/d", "table": "t"}, "sink.postgres.url: must begin with postgresql://"),
        ({"url": "postgresql://h/d", "table": "a; drop"}, "sink.postgres.table: 'a; drop' is no name of a table"),
        ({"url": "postgresql://h/d"}, "sink.postgres.table: is missing"),
    ],
)
def test_a_wrong_sink_is_one_line(tmp_path: Path, sink: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(tmp_path, sink={"postgres": sink})
    assert told in str(caught.value)
