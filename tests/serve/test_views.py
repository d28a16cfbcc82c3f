"""The statements that `sessionlake views` prints, run by the engines they are for; Trino's are parsed."""

from contextlib import closing
from pathlib import Path

import duckdb
import pytest
import sqlglot
from pyspark.sql import SparkSession

from sessionlake.cli import views
from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.compact.fold import MERGE, fold
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.operators.sessions.section import QuarantineSection
from sessionlake.serve.database import open_database
from sessionlake.serve.views import DIALECTS, current_schema_remark, live_view, view_statements
from sessionlake.warehouse import schemas
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import TableScan
from sessionlake.warehouse.tables import Tables
from tests.jobs.compact.compact_support import DAY, append_batch, one_event, upkeep_of
from tests.support import make_config

TABLES = (schemas.SESSIONS, schemas.CHANGELOG, schemas.BATCHES)


@pytest.fixture(scope="module")
def config(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    found = one_event(spark, tmp_path_factory.mktemp("views"))
    tables = Tables(spark, found.pipeline.warehouse, CHANGELOG)
    append_batch(tables, 1, *(("upsert", "a", day * DAY, day + 1) for day in range(4)))
    fold(upkeep_of(spark, found), 1, MERGE, 1 << 20)
    append_batch(tables, 2, ("upsert", "a", 0, 9), ("delete", "a", DAY, 0), ("upsert", "b", 5, 1), ("emit", "a", 7, 1))
    return found


@pytest.fixture(params=["update", "final"])
def shown(config: Config, request: pytest.FixtureRequest) -> Config:
    return config.model_copy(update={"section": config.section.model_copy(update={"emit": request.param})})


def expected(config: Config) -> list[tuple[object, ...]]:
    with closing(open_database(config, Lake.of(config))) as database:
        return database.sql("select * from sessions_live order by session_key, session_start").fetchall()


def test_in_spark(spark: SparkSession, shown: Config) -> None:
    statement = live_view(shown, "spark").removesuffix(";").replace("view sessions_live", "temp view other", 1)
    spark.sql(statement)
    found = spark.sql("select * from other order by session_key, session_start").toArrow()
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("found", found)
        assert database.execute("select * from found").fetchall() == expected(shown)


def test_in_duckdb(shown: Config) -> None:
    lake = Lake(shown.pipeline.warehouse, CHANGELOG)
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.execute("create schema mine")
        for name in TABLES:
            database.register(f"scan_{name}", TableScan(lake[name].open()))
            database.execute(f"create table mine.{name} as select * from scan_{name}")
        database.execute(live_view(shown, "duckdb", "mine"))
        found = database.execute("select * from mine.sessions_live order by session_key, session_start").fetchall()
    assert found == expected(shown)


def test_by_path(config: Config) -> None:
    path = f"{config.pipeline.warehouse}/sessions"
    assert f"from delta.`{path}` as stored" in live_view(config, "spark")
    # Its extension can't be had here; that it is the same statement but for the tables' names is what there is to prove.
    by_path = (
        live_view(config, "duckdb").replace(f"delta_scan('{config.pipeline.warehouse}/", "mine.").replace("')", "")
    )
    assert by_path.replace("view sessions_live", "view mine.sessions_live") == live_view(
        config, "duckdb", "mine"
    ).replace("')", "")


def test_trino_takes_it(shown: Config) -> None:
    (statement,) = sqlglot.parse(live_view(shown, "trino", "delta.clicks"), dialect="trino")
    assert statement is not None
    assert not list(statement.find_all(sqlglot.exp.Anonymous))
    tables = {f"{t.catalog}.{t.db}.{t.name}" for t in statement.find_all(sqlglot.exp.Table)}
    assert tables >= {"delta.clicks.sessions", "delta.clicks.session_changelog", "delta.clicks.sessions_live"}


def test_trino_without_a_schema_means_the_one_in_use(config: Config) -> None:
    assert current_schema_remark("trino", "delta.clicks", "clicks") == current_schema_remark("spark", None, "c") == ""
    told = current_schema_remark("trino", None, config.pipeline.name) + live_view(config, "trino")
    assert told.startswith("-- in the schema in which the tables are registered, as after: use delta.")
    (statement,) = sqlglot.parse(told, dialect="trino")
    assert statement is not None
    tables = list(statement.find_all(sqlglot.exp.Table))
    assert {t.name for t in tables} >= {"sessions", "session_changelog", "sessions_live"}
    assert not any(t.catalog or t.db for t in tables)


def test_no_tables(tmp_path: Path) -> None:
    with pytest.raises(PipelineStateError, match="has no sessions yet"):
        live_view(make_config(tmp_path), "spark")


def test_the_commands_dialects() -> None:
    assert (*DIALECTS, views.DBT) == views.DIALECTS


@pytest.fixture
def limited(config: Config) -> Config:
    """Sessions of which those with nine events or more are kept apart."""
    section = config.section.model_copy(update={"quarantine": QuarantineSection(max_events=8)})
    return config.model_copy(update={"section": section})


def test_the_further_views_in_spark_and_duckdb(spark: SparkSession, limited: Config) -> None:
    """Those of a query without Spark are the oracle: they come another way, by the fold point and views upon views."""
    names = ("sessions_live", "all_sessions", "sessions_quarantined", "quarantined_keys")
    lake = Lake(limited.pipeline.warehouse, CHANGELOG)
    with closing(open_database(limited, lake)) as oracle, duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.execute("create schema mine")
        for name in TABLES:
            database.register(f"scan_{name}", TableScan(lake[name].open()))
            database.execute(f"create table mine.{name} as select * from scan_{name}")
        for statement in view_statements(limited, "duckdb", "mine").values():
            database.execute(statement)
        for statement in view_statements(limited, "spark").values():
            spark.sql(statement.removesuffix(";").replace("or replace view", "or replace temp view", 1))
        for name in names:
            wanted = oracle.execute(f"select * from {name} order by all").fetchall()
            assert len(wanted) == {"sessions_live": 4, "all_sessions": 5}.get(name, 1)
            assert database.execute(f"select * from mine.{name} order by all").fetchall() == wanted
            database.register("found", spark.table(name).toArrow())
            assert database.execute("select * from found order by all").fetchall() == wanted
    for name in names:
        spark.catalog.dropTempView(name)


def test_trino_takes_the_further_views(limited: Config) -> None:
    statements = sqlglot.parse("".join(view_statements(limited, "trino", "delta.clicks").values()), dialect="trino")
    made = [one.find(sqlglot.exp.Table).name for one in statements if isinstance(one, sqlglot.exp.Create)]
    assert made == ["sessions_live", "all_sessions", "sessions_quarantined", "quarantined_keys"]
    assert not any(list(one.find_all(sqlglot.exp.Anonymous)) for one in statements if one is not None)


def test_a_pipeline_of_a_project_has_its_name_before_those_of_its_tables(config: Config) -> None:
    member = config.model_copy(
        update={
            "project_warehouse": "lake",
            "pipeline": config.pipeline.model_copy(update={"name": "my-clicks"}),
        }
    )
    (statement,) = sqlglot.parse(live_view(member, "trino", "delta.lake"), dialect="trino")
    assert statement is not None
    tables = {t.sql("trino") for t in statement.find_all(sqlglot.exp.Table) if t.catalog}
    assert tables >= {"delta.lake.my_clicks_sessions AS stored", "delta.lake.my_clicks_session_changelog"}
    by_path = live_view(member, "spark")
    assert by_path.startswith("create or replace view my_clicks_sessions_live as\n")
    assert f"from delta.`{config.pipeline.warehouse}/sessions` as stored" in by_path
