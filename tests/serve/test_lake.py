"""A pipeline's tables without Spark: the same rows as Spark's, through deletion vectors, odd keys and pushed filters."""

import re
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import Config
from sessionlake.errors import LakeError, PipelineStateError
from sessionlake.jobs.compact.fold import MERGE, fold
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.reading import read_sessions
from sessionlake.serve import database as database_module
from sessionlake.serve.database import open_database, open_rows
from sessionlake.serve.queries import answer_project_sql, answer_sql, find_rows, query_tables
from sessionlake.warehouse import schemas
from sessionlake.warehouse.arrow_files import delta_rows
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import TableScan
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches
from tests.jobs.compact.compact_support import DAY, append_batch, one_event, upkeep_of
from tests.support import make_config

LONG = "é" * 40
KEYS = ["a", "it's", 'quo"te', "back\\slash", "%_", LONG, LONG + "x", "\U0010ffff" * 34, " ", "nul\x00"]


@pytest.fixture(scope="module")
def config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A snapshot with deletion vectors, and a changelog that goes on after it; the directory's name needs quoting."""
    root = tmp_path_factory.mktemp("lake") / "a b#c é'd"
    root.mkdir()
    found = one_event(spark, root)
    tables = Tables(spark, found.pipeline.warehouse, CHANGELOG)
    append_batch(tables, 1, *(("upsert", key, day * DAY, 5) for key in KEYS for day in range(3)))
    fold(upkeep_of(spark, found, "first"), 1, MERGE, 1 << 20)
    append_batch(tables, 2, *(("upsert", key, DAY, 6) for key in KEYS[::2]), ("delete", "it's", 0, 0))
    fold(upkeep_of(spark, found, "second"), 2, MERGE, 1 << 20)
    append_batch(tables, 3, ("upsert", "a", DAY, 7), ("delete", 'quo"te', DAY, 0), ("upsert", "new", 4 * DAY, 1))
    return found


def rows_of(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.to_pylist()))


def test_the_same_as_sparks(spark: SparkSession, config: Config) -> None:
    lake = Lake(config.pipeline.warehouse, CHANGELOG)
    assert pa.table(lake[schemas.SESSIONS].open().deletion_vectors()).num_rows
    expected = read_sessions(spark, config).toArrow()
    found = sessionlake.read_sessions(config)
    assert found.columns == expected.column_names
    found_rows = found.to_arrow_table()
    assert [str(field.type).replace("Etc/", "") for field in found_rows.schema] == [
        str(f.type) for f in expected.schema
    ]
    assert rows_of(found_rows.cast(expected.schema)) == rows_of(expected)
    with closing(open_database(config, lake)) as database:
        batches = database.sql("select * from batches").to_arrow_table()
    assert rows_of(batches.cast(schemas.batches())) == rows_of(
        read_batches(Tables(spark, config.pipeline.warehouse, CHANGELOG)).toArrow().cast(schemas.batches())
    )


@pytest.mark.parametrize("key", [*KEYS, "new", "nobody", "A"])
def test_a_keys_sessions(config: Config, key: str) -> None:
    everything = sessionlake.read_sessions(config).order("session_start")
    of_key = [row for row in everything.fetchall() if row[0] == key]
    assert find_rows(config, key, None, None, 100)[1] == of_key
    # Inclusive where a session ends, exclusive where it starts: the middle one alone has a time in the range.
    middle = [row for row in of_key if row[1].timestamp() == DAY / 1e6]
    assert find_rows(config, key, 6, 2 * DAY, 100)[1] == middle
    assert find_rows(config, key, None, None, 1)[1] == of_key[:1]
    columns, rows = query_tables(
        config,
        f"select * exclude (state) from sessions_live where session_key = '{key.replace(chr(39), chr(39) * 2)}' order by 2",
        9,
    )
    assert (columns[0], rows) == ("session_key", of_key)


CONDITIONS = (
    "session_key in ('a', 'it''s')",
    "session_key > 'a' and not (total < 6)",
    "total = 6 or session_date = date '1970-01-02'",
    "session_start between timestamptz '1970-01-01 00:00:00.000005+00' and timestamptz '1970-01-02 00:00:00+00'",
    "total is null or session_end is not null",
    "state = '\\x73\\x74\\x61\\x74\\x65'::blob",
    "session_key like '%e%' and total % 2 = 0",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_that_are_pushed_down_keep_the_right_rows(config: Config, condition: str) -> None:
    table = Lake(config.pipeline.warehouse, CHANGELOG)[schemas.SESSIONS].open()
    with duckdb.connect() as database:
        database.register("pushed", TableScan(table))
        database.execute("create table held as select * from pushed")
        query = "select session_key, session_start, total from {} where " + condition + " order by all"
        expected = database.execute(query.format("held")).fetchall()
        assert database.execute(query.format("pushed")).fetchall() == expected


def test_only_what_a_query_needs_is_read(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any]] = []
    table = Lake(config.pipeline.warehouse, CHANGELOG)[schemas.SESSIONS].open()

    def spy(opened: Any, columns: Any = None, condition: Any = None) -> Any:
        asked.append((columns, condition))
        return delta_rows(opened, columns, condition)

    monkeypatch.setattr("sessionlake.warehouse.scan.delta_rows", spy)
    with duckdb.connect() as database:
        database.register("spied", TableScan(table))
        asked.clear()
        database.execute("select max(total) from spied where session_key = 'a'").fetchall()
    assert asked == [(["total"], "((\"session_key\" = 'a'))")]


def test_a_key_reaches_each_scan_of_sparks_view(spark: SparkSession, config: Config) -> None:
    """The snapshot's and the changelog's, before they are merged: files and row groups without the key are not read."""
    length = "spark.sql.maxMetadataStringLength"
    try:
        spark.conf.set(length, "10000")
        plan = read_sessions(spark, config).where("session_key = 'a'")._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset(length)
    pushed = re.findall(r"FileScan parquet .*?PushedFilters: (\[.*?\]), ReadSchema", plan)
    assert len(pushed) == plan.count("FileScan parquet") >= 2
    assert all("EqualTo(session_key,a)" in filters for filters in pushed), pushed


NAMES = ["main", "memory", "temp", "system", "information_schema", "pg_catalog", "select", "x-y"]


def called(config: Config, name: str) -> Config:
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"name": name})})


def test_a_pipeline_may_have_any_name(config: Config) -> None:
    """DuckDB keeps some of these for itself."""
    wanted = query_tables(config, "select count(*) from sessions_live", 1)
    for name in NAMES:
        assert query_tables(called(config, name), "select count(*) from sessions_live", 1) == wanted
    query = 'select (select count(*) from main_.sessions_live) + (select count(*) from "x-y".sessions_live)'
    with answer_project_sql([called(config, name) for name in NAMES], query) as answer:
        assert list(answer.rows) == [(2 * wanted[1][0][0],)]


def test_who_may_reach_files(config: Config, tmp_path: Path) -> None:
    """What answers SQL and HTTP may not; a relation in Python is the caller's, who may anyhow."""
    lake = Lake(config.pipeline.warehouse, CHANGELOG)
    last = find_last_batch(lake)
    assert last is not None
    for database in (open_database(config, lake), open_rows(config, lake, last)):
        with closing(database):
            assert database.execute("select count(*) from sessions_live").fetchall()
            with pytest.raises(duckdb.PermissionException):
                database.execute("select * from read_text('/proc/self/environ')")
            with pytest.raises(duckdb.InvalidInputException, match="locked"):
                database.execute("set enable_external_access = true")
    sessionlake.read_sessions(config).write_csv(str(tmp_path / "sessions.csv"))
    assert (tmp_path / "sessions.csv").read_text().startswith("session_key,")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let DuckDB have 60 MB of memory, and a current directory in which it has spilled before."""

    original = database_module._connected

    def connected() -> duckdb.DuckDBPyConnection:
        made = original()
        made.execute("set memory_limit = '60MB'; set threads = 1")
        return made

    monkeypatch.setattr(database_module, "_connected", connected)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tmp").mkdir()
    return tmp_path / ".tmp"


MEMORY = r"^sql: the query needs more memory than there is \(Out of Memory Error: .* used\)\); ask for fewer rows or columns, or add --allow-files: "
LARGE = "create temp table t as select range a, hash(range) b, hash(range + 1) c from range(5_000_000)"
SPILLED = "select count(*) from duckdb_temporary_files()"


@pytest.mark.parametrize("before", ["", f"{LARGE}; "])
@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '{}/evil.py' (header false)",
        "select * from read_blob('{}/*')",
        "select * from read_text('{}/a')",
        "select * from read_csv('{}/a')",
        "select * from glob('{}/*')",
        "attach '{}/a.db'",
        "export database '{}/all'",
        "set temp_directory = '{}'",
    ],
)
def test_sql_of_others_has_no_directory_to_spill_to(config: Config, small: Path, before: str, query: str) -> None:
    (small / "a").write_text("secret\n")
    places = {".tmp", str(small), database_module._private_directory()}
    for place in places:
        for answered in (
            answer_sql(config, before + query.format(place)),
            answer_project_sql([config], before + query.format(place)),
        ):
            with (
                pytest.raises(LakeError, match=MEMORY if before else "reaches beyond the pipeline's tables"),
                answered as answer,
            ):
                list(answer.rows)
        assert [*small.iterdir()] == [small / "a"]
        assert [*Path(database_module._private_directory()).iterdir()] == []


def test_what_the_package_asks_itself_spills_where_no_other_account_reads(config: Config, small: Path) -> None:
    lake = Lake(config.pipeline.warehouse, CHANGELOG)
    last = find_last_batch(lake)
    assert last is not None
    of_files = open_database(config, lake, allow_files=True)
    for opened in (open_database(config, lake), open_rows(config, lake, last), of_files):
        with closing(opened):
            opened.execute(LARGE)
            assert opened.execute(SPILLED).fetchall() != [(0,)]
            (private,) = opened.execute("select current_setting('temp_directory')").fetchall()[0]
            assert stat.S_IMODE(Path(private).stat().st_mode) == 0o700
            assert Path(private).is_absolute()
            assert [*Path(private).iterdir()]
    assert [*small.iterdir()] == []


def test_a_machine_without_a_temporary_directory_answers(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(database_module, "_temporary_directory", none)
    with closing(open_database(config, Lake(config.pipeline.warehouse, CHANGELOG))) as opened:
        assert opened.execute("select current_setting('temp_directory')").fetchall() == [("",)]
        assert opened.execute("select count(*) from sessions_live").fetchall()


def test_views_stay_where_they_were_opened(spark: SparkSession, config: Config) -> None:
    tables, lake = Tables(spark, config.pipeline.warehouse, CHANGELOG), Lake(config.pipeline.warehouse, CHANGELOG)
    with closing(open_database(config, lake)) as database:
        before = database.execute("select count(*), max(batch_id) from session_changelog").fetchall()
        append_batch(tables, 4, ("upsert", "later", 0, 1))
        assert database.execute("select count(*), max(batch_id) from session_changelog").fetchall() == before
        last = lake[schemas.CHANGELOG].last_commit()
        assert last is not None
        assert last.metadata["batch_id"] == before[0][1] == 3
    append_batch(tables, 5, ("delete", "later", 0, 0))


def test_final_sessions_only(spark: SparkSession, config: Config) -> None:
    final = config.model_copy(update={"section": config.section.model_copy(update={"emit": "final"})})
    shown = sessionlake.read_sessions(final).fetchall()
    assert len(shown) < len(sessionlake.read_sessions(config).fetchall())
    assert len(shown) == read_sessions(spark, final).count()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selct 1", 'sql: Parser Error: syntax error at or near "selct"; correct the query'),
        (
            "select * from sesions",
            'sql: Catalog Error: Table with name sesions does not exist! Did you mean "sessions"?',
        ),
        ("select error('of its own')", "of its own"),
    ],
)
def test_queries_that_cannot_be_answered(config: Config, query: str, message: str) -> None:
    with pytest.raises(LakeError) as raised:
        query_tables(config, query, 1)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_tables(tmp_path: Path) -> None:
    with pytest.raises(PipelineStateError, match="has no sessions yet; run `sessionlake run` first"):
        sessionlake.read_sessions(make_config(tmp_path))


def test_a_store_that_is_not_known(tmp_path: Path) -> None:
    far = make_config(tmp_path, pipeline={"warehouse": "hdfs://nowhere/warehouse"})
    with pytest.raises(LakeError, match=r"'hdfs://nowhere/warehouse' can't be read without Spark .*--engine spark"):
        sessionlake.read_sessions(far)
