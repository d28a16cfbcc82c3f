"""Pipelines whose names are words of SQL, or names that an engine keeps for itself."""

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sessionlake.config.load import Config
from sessionlake.serve.database import open_databases, schema_of
from sessionlake.serve.queries import query_tables
from sessionlake.serve.views import view_statements
from sessionlake.warehouse.dialects import DUCKDB
from tests.stream.old_warehouses import FIXTURES, unpack
from tests.support import make_config

KEPT = ["memory", "temp", "main", "MAIN", "pg_catalog", "information_schema", "system", "global_temp", "default"]
OTHERS = [
    "main_",
    "x",
    "parts_of_x",
    "parts_of_main",
    "written_batches",
    "my-pipe",
    "localmemdb",
    "duckdb",
    "sqlite_master",
    "unix_micros",
]


def words() -> list[str]:
    with duckdb.connect() as database:
        rows = database.execute("select keyword_name from duckdb_keywords()").fetchall()
    return sorted({word for (word,) in rows} | {*KEPT, *OTHERS})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("words")
    unpack(root, FIXTURES / "jobs-0.2.tar.gz")
    return root


def named(root: Path, name: str) -> Config:
    return make_config(root, pipeline={"name": name, "archive": True})


QUERY = "select (select count(*) from {0}sessions_live), (select count(*) from {0}batches), (select count(*) from {0}late_events)"


@pytest.mark.parametrize("name", ["both", "select", "table", "left", "end", "group", "my-pipe", *KEPT])
def test_a_pipeline_is_read_whatever_its_name_is(root: Path, name: str) -> None:
    assert (
        query_tables(named(root, name), QUERY.format(""), 10)[1]
        == query_tables(named(root, "test"), QUERY.format(""), 10)[1]
    )
    assert all("``" not in text for text in view_statements(named(root, name), "spark").values())


@pytest.mark.slow
def test_pipelines_of_a_project_stand_beside_each_other(root: Path) -> None:
    unique: dict[str, Config] = {name.lower(): named(root, name) for name in words()}
    configs = list(unique.values())
    assert len({schema_of(config).lower() for config in configs}) == len(configs)
    expected = query_tables(configs[0], QUERY.format(""), 10)[1]
    found: dict[str, Any] = {}
    with closing(open_databases(configs)) as database:
        for config in configs:
            at = f"{DUCKDB.named(schema_of(config))}."
            found[config.pipeline.name] = database.execute(QUERY.format(at)).fetchall()
    assert {name: rows for name, rows in found.items() if rows != expected} == {}
