"""SQL over a project by Spark: the same names and rows as by DuckDB, each table at one version."""

import json
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.cli import main
from sessionlake.config.project import Project, load_project
from sessionlake.errors import ConfigError, NoBatchesError
from sessionlake.jobs.compact.fold import MERGE, fold
from sessionlake.operators.views import create_schemas
from sessionlake.serve.database import open_databases
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from tests.jobs.compact.compact_support import DAY, append_batch, upkeep_of
from tests.project.project_support import PIPELINES, write_file, write_project

FINAL = 'gap = "10 minutes"\nemit = "final"'
QUARANTINE = "[quarantine]\nmax_events = 8\n"


@pytest.fixture(scope="module")
def project(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project of which `stragglers` has no batches; `sittings` has a folded batch, and one that is in no saved row of `batches`."""
    pipelines = {("my-hours" if name == "hours" else name): text for name, text in PIPELINES.items()}
    pipelines["sittings"] = pipelines["sittings"].replace('gap = "10 minutes"', FINAL) + QUARANTINE
    found = load_project(write_project(tmp_path_factory.mktemp("it's a project"), 2, pipelines=pipelines))
    for name in ("sittings", "my-hours", "latest"):
        run(spark, found.configs[name], once=True)
    sittings = found.configs["sittings"]
    fold(upkeep_of(spark, sittings), 1, MERGE, 1 << 20)
    append_batch(Tables.of(spark, sittings), 2, ("upsert", "a", 5, 3), ("upsert", "a", DAY, 9), ("emit", "b", 7, 1))
    return found


def call(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == code, done.output
    return done


@pytest.mark.slow
def test_every_table_and_view_has_the_rows_that_duckdb_sees(spark: SparkSession, project: Project) -> None:
    configs = [project.configs[name] for name in ("sittings", "my-hours", "latest")]
    create_schemas(spark, configs)
    with closing(open_databases(configs)) as oracle, duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        seen = oracle.execute("select database_name, view_name from duckdb_views() where not internal").fetchall()
        names = {(schema, name) for schema, name in seen if schema in project.configs}
        assert {("sittings", "quarantined_keys"), ("sittings", "batches"), ("my-hours", "windows_live")} <= names
        for schema, name in sorted(names):
            wanted = oracle.execute(f'select * from "{schema}".{name} order by all').fetchall()
            found = spark.sql(f"select * from {schema.replace('-', '_')}.{name}")
            database.register("found", found.toArrow())
            assert found.columns == [column[0] for column in oracle.execute(f'describe "{schema}".{name}').fetchall()]
            assert database.execute("select * from found order by all").fetchall() == wanted, (schema, name)
        assert len(oracle.execute("select * from sittings.batches").fetchall()) == 3
        assert oracle.execute("select count(*) from sittings.quarantined_keys").fetchone() == (1,)


@pytest.mark.slow
def test_a_later_batch_does_not_move_the_tables_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path, 1, pipelines={"latest": PIPELINES["latest"]})
    configs = load_project(root).configs
    run(spark, configs["latest"], once=True)
    create_schemas(spark, configs.values())
    queries = ("select count(*) n from latest.batches", "select sum(v) n from latest.table_live")
    before = [spark.sql(query).head() for query in queries]
    write_file(root, 4)
    run(spark, configs["latest"], once=True)
    assert [spark.sql(query).head() for query in queries] == before
    create_schemas(spark, configs.values())
    assert [spark.sql(query).head() for query in queries] != before


@pytest.mark.slow
def test_the_command(project: Project) -> None:
    query = "select s.session_key, t.v from sittings.all_sessions s join latest.table_live t on s.session_key = t.table_key order by 1, 2"
    words = ("sql", project.directory, query, "--format", "json")
    found = call(*words, "--engine", "spark", "--allow-files").stdout
    assert found == call(*words).stdout
    assert len(found.splitlines()) > 3
    assert json.loads(call("sql", project.directory, "select count(*) n from my_hours.batches", "--engine", "spark", "--allow-files", "--json").stdout) == [{"n": 2}]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "words", "code", "said"),
    [
        ("select 1", (), 2, "Spark's SQL can read and write all files"),
        ("select * from nobody.sessions_live", ("--allow-files",), 2, "sessionlake: sql: [TABLE_OR_VIEW_NOT_FOUND]"),
        ("select * from stragglers.sessions_live", ("--allow-files",), 6, "has no sessions yet; run `sessionlake run` first"),
    ],
)  # fmt: skip
def test_errors_are_one_line(project: Project, query: str, words: tuple[str, ...], code: int, said: str) -> None:
    done = call("sql", project.directory, query, "--engine", "spark", *words, code=code)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_two_pipelines_of_one_name_in_spark(spark: SparkSession, project: Project) -> None:
    hours = project.configs["my-hours"]
    other = hours.model_copy(update={"pipeline": hours.pipeline.model_copy(update={"name": "my_hours"})})
    with pytest.raises(ConfigError, match="'my_hours' and 'my-hours' are both 'my_hours' in Spark's SQL"):
        create_schemas(spark, [hours, other])
    with pytest.raises(NoBatchesError, match="no batches are committed yet by stragglers"):
        create_schemas(spark, [project.configs["stragglers"]])


def test_readers_take_a_project_and_a_name(spark: SparkSession, project: Project) -> None:
    config = project.configs["latest"]
    wanted = sessionlake.read_table(config).order("table_key").fetchall()
    assert sessionlake.read_table(project.directory, "latest").order("table_key").fetchall() == wanted
    assert sessionlake.read(Path(project.directory), "latest").order("table_key").fetchall() == wanted
    assert sessionlake.read_table(spark, project.directory, "latest").count() == len(wanted)
    with pytest.raises(ConfigError, match=r"'nobody' is no pipeline of .*; write one of "):
        sessionlake.read_table(project.directory, "nobody")
    with pytest.raises(ConfigError, match=r"read_sessions: this pipeline computes .*; use: sessionlake.read_table"):
        sessionlake.read_sessions(project.directory, "latest")
