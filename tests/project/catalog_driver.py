"""A project in the catalog of Hive's metastore, run as a script in a directory of its own, whose Derby is the metastore.

It takes the catalog through the life of a project, and prints one object of JSON: by step what was seen.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.engine.spark import build_session
from sessionlake.serve.database import open_database
from sessionlake.stream.run import run
from sessionlake.warehouse.lake import Lake
from tests.project.project_support import PIPELINES, write_file, write_project

QUARANTINE = "[quarantine]\nmax_events = 1\n"
LONG = f"max(v{' + 0' * 99})"
"""An aggregate, and so the comment of a column, of more characters than Hive's metastore takes."""


def call(*words: str) -> list[Any]:
    """Return a command's exit code and its lines, those on standard error last."""
    done = CliRunner().invoke(main, ["register", *words])
    return [done.exit_code, [*done.stdout.splitlines(), *done.stderr.splitlines()]]


def different_views(spark: SparkSession, config: Config, prefix: str) -> dict[str, int]:
    """Return by view of a pipeline its number of rows, negative if DuckDB, without a catalog, sees others."""
    found: dict[str, int] = {}
    with closing(open_database(config, Lake.of(config))) as oracle, duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for (name,) in oracle.execute("show tables").fetchall():
            rows = oracle.execute(f"select * from {name} order by all").fetchall()
            database.register("seen", spark.sql(f"select * from lake.{prefix}{name}").toArrow())
            same = database.execute("select * from seen order by all").fetchall() == rows
            found[name] = len(rows) if same else -len(rows) - 1
    return found


def entries(spark: SparkSession) -> list[str]:
    """Return the names in the schema."""
    return sorted(row.tableName for row in spark.sql("show tables in lake").collect())


def described(spark: SparkSession, name: str) -> dict[str, str]:
    """Return the comments of an entry's columns by name, and its own as `Comment`."""
    rows = spark.sql(f"describe table extended {name}").collect()
    at = next(i for i, row in enumerate(rows) if not row.col_name)
    (own,) = (row.data_type for row in rows[at:] if row.col_name == "Comment")
    return {row.col_name: row.comment or "" for row in rows[:at]} | {"Comment": own}


def story(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Return by step the outcome."""
    write_project(root, 1, pipelines={**PIPELINES, "sittings": PIPELINES["sittings"] + QUARANTINE})
    configs = {name: load_config(root / f"{name}.toml") for name in PIPELINES}
    for name in ("sittings", "hours", "latest"):
        run(spark, configs[name], once=True)
    words, seen = (str(root), "--schema", "lake"), {}
    logs = sorted(root.glob("lake/*/*/_delta_log/*.json"))
    seen["first"], seen["second"] = call(*words), call(*words)
    seen["written"] = [str(file) for file in sorted(root.glob("lake/*/*/_delta_log/*.json")) if file not in logs]
    seen["rows"] = {name: different_views(spark, configs[name], f"{name}_") for name in ("sittings", "hours", "latest")}
    seen["of_view"] = described(spark, "lake.sittings_sessions_live")
    seen["of_table"] = described(spark, "lake.sittings_sessions")
    return {**seen, **changes(spark, root, words), **others(spark, root, words), **drops(spark, root, words)}


def changes(spark: SparkSession, root: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """Add an aggregate, take away a table and a pipeline."""
    sittings = root / "sittings.toml"
    sittings.write_text(sittings.read_text().replace('total = "sum(v)"', f'total = "sum(v)"\nmost = "{LONG}"'))
    write_file(root, 1)
    run(spark, load_config(sittings), once=True)
    shutil.rmtree(root / "lake" / "hours" / "correction_outcomes")
    (root / "latest.toml").unlink()
    return {
        "changed": call(*words),
        "of_changed_view": described(spark, "lake.sittings_sessions_live"),
        "changed_rows": different_views(spark, load_config(sittings), "sittings_"),
    }


def others(spark: SparkSession, root: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """Use names that are a user's, or another project's."""
    seen: dict[str, Any] = {}
    spark.sql("create view lake.stragglers_sessions as select 1 as one")
    place = str(root.with_name("others"))
    spark.sql(f"create table lake.others using delta location '{place}' as select 1 as one")
    run(spark, load_config(root / "stragglers.toml"), once=True)
    before = entries(spark)
    seen["taken"] = call(*words)
    seen["after_taken"] = entries(spark) == before
    spark.sql("drop view lake.stragglers_sessions")
    seen["freed"] = call(*words)

    other = write_project(root.with_name("other"), 1)
    hours = load_config(other / "hours.toml")
    run(spark, hours, once=True)
    alone = (str(other / "hours.toml"), "--schema", "lake")
    seen["other_project"], seen["other_drops"] = call(*alone), call(*alone, "--drop")
    seen["replaced"] = call(*alone, "--replace")
    seen["replaced_rows"] = different_views(spark, hours, "hours_")
    seen["taken_back"] = call(*words, "--replace")
    seen["other_drops_its_own"] = call(*alone, "--drop")
    seen["catalog"] = call(*words, "--catalog", "nobody")
    # Derby is this process's: another one can't open it.
    command = [sys.executable, "-m", "sessionlake", "register", *words]
    done = subprocess.run(
        command, env={**os.environ, "SESSIONLAKE_QUIET": "1"}, capture_output=True, text=True, check=False
    )
    seen["held"] = [done.returncode, done.stderr.splitlines()]
    return seen


def drops(spark: SparkSession, root: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """Drop a pipeline, a project next to a user's table, a project alone; at the end the project is there again."""
    seen: dict[str, Any] = {}
    seen["drop_one"] = call(str(root / "hours.toml"), "--schema", "lake", "--drop")
    seen["after_one"] = entries(spark)
    seen["drop_all"] = call(*words, "--drop")
    seen["left"] = entries(spark)
    spark.sql("drop table lake.others")
    call(*words)
    seen["drop_schema"] = call(*words, "--drop")
    seen["schemas"] = [row[0] for row in spark.sql("show schemas").collect()]
    seen["drop_nothing"] = call(*words, "--drop")
    seen["files"] = sorted(file.name for file in (root / "lake" / "sittings").iterdir())
    call(*words)
    return seen


if __name__ == "__main__":
    session = build_session("catalog", master="local[2]", shuffle_partitions=2, driver_memory="2g", little_java=True, metastore=True)  # fmt: skip
    sys.stdout.write(json.dumps(story(session, Path(sys.argv[1]))))
    session.stop()
