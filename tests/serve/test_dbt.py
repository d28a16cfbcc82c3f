"""The `sources.yml` that `sessionlake views --dialect dbt` prints, held against dbt's page about the properties of sources."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.serve.database import open_database
from sessionlake.stream.run import run
from sessionlake.warehouse.lake import Lake
from tests.project.project_support import write_project

# Read from https://docs.getdbt.com/reference/source-properties: the keys, the types of their values, and those that are required.
TEXT = str
SOURCE = {"name": TEXT, "description": TEXT, "database": TEXT, "schema": TEXT, "loader": TEXT, "config": dict, "quoting": dict, "tables": list}  # fmt: skip
TABLE = {"name": TEXT, "description": TEXT, "identifier": TEXT, "data_tests": list, "config": dict, "external": dict, "columns": list}  # fmt: skip
COLUMN = {"name": TEXT, "description": TEXT, "data_tests": list, "config": dict, "data_type": TEXT, "quote": bool}
FILE = {"version": int, "sources": list}


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project in which `sittings` and `latest` have a batch."""
    root = write_project(tmp_path_factory.mktemp("dbt"), 1)
    for name in ("sittings", "latest"):
        run(spark, load_config(root / f"{name}.toml"), once=True)
    return root


def printed(root: Path, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["views", str(root), "--dialect", "dbt", *words])
    assert (done.exit_code, done.stderr) == (
        0, "sessionlake: left out, because they have no batches yet: hours, stragglers\n" if root.is_dir() else ""
    ), done.output  # fmt: skip
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def require(given: dict[str, Any], known: dict[str, type], *needed: str) -> None:
    assert set(given) <= set(known)
    assert set(needed) <= set(given)
    assert {key: type(value) for key, value in given.items()} == {key: known[key] for key in given}


def names(config: Config) -> set[str]:
    """Return all tables and views that a query without Spark sees."""
    database = open_database(config, Lake.of(config))
    try:
        return {row[0] for row in database.sql("show tables").fetchall()}
    finally:
        database.close()


@pytest.mark.parametrize("words", [(), ("--schema", "lake"), ("--schema", "delta.lake")])
def test_the_file_is_as_dbt_wants_it(root: Path, words: tuple[str, ...]) -> None:
    found = printed(root, *words)
    require(found, FILE, "version", "sources")
    assert found["version"] == 2
    assert [source["name"] for source in found["sources"]] == ["latest", "sittings"]
    for source in found["sources"]:
        require(source, SOURCE, "name", "description", "schema", "tables")
        assert source.get("database") == ("delta" if words[1:] == ("delta.lake",) else None)
        assert source["schema"] == ("lake" if words else source["name"])
        assert {table["name"] for table in source["tables"]} == names(load_config(root / f"{source['name']}.toml"))
        for table in source["tables"]:
            require(table, TABLE, "name", "description", "columns")
            assert table.get("identifier") == (f"{source['name']}_{table['name']}" if words else None)
            for column in table["columns"]:
                require(column, COLUMN, "name")


def test_columns_and_descriptions_are_those_of_the_tables(root: Path) -> None:
    config = load_config(root / "sittings.toml")
    (source,) = printed(root / "sittings.toml")["sources"]
    tables = {table["name"]: table for table in source["tables"]}
    delta = Lake.of(config)["sessions"].open()
    assert tables["sessions"]["description"] == delta.metadata().description
    schema = pa.schema(delta.schema().to_arrow())
    comments = {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in schema}
    assert {one["name"]: one.get("description", "") for one in tables["sessions"]["columns"]} == comments
    assert comments["total"] == "sum(v)"
    live = {one["name"]: one.get("description", "") for one in tables["sessions_live"]["columns"]}
    assert live == comments
    assert "each session" in tables["sessions_live"]["description"]


def test_a_text_that_dbt_would_take_for_a_template_is_quoted_for_it() -> None:
    from sessionlake.serve.dbt import _described

    assert yaml.safe_load(_described("plain: text")) == "plain: text"
    for text in (
        "it's {{ x }}: 'a' \\ \"b\"\n# c",
        "a{% endraw %}{{ env_var('SECRET') }}",
        "{#",
        "{{",
        "{%- endraw -%}{{ 1 + 1 }}",
    ):
        assert Template(yaml.safe_load(_described(text))).render() == text


@given(
    st.lists(st.sampled_from(["{", "}", "%", "#", " endraw ", " raw ", "-", "'", '"', "\n", "\\", "x"])).map("".join)
)
def test_no_text_is_a_template_to_dbt(text: str) -> None:
    from sessionlake.serve.dbt import _described

    assert Template(yaml.safe_load(_described(text)), keep_trailing_newline=True).render() == text
