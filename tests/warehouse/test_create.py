"""A table is the same whichever way it was created, and however many add its columns at once."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sessionlake.errors import ConfigError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Table, Tables, spark_schema

SETTINGS = {"checkpointInterval": "20"}


def writer_of(table: Path) -> str:
    lines = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    (engine,) = [action["commitInfo"]["engineInfo"] for action in map(json.loads, lines) if "commitInfo" in action]
    return str(engine).partition(":")[0].partition("/")[0]


def created(table: Path) -> dict[str, Any]:
    lines = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    actions: dict[str, Any] = {}
    for line in lines:
        actions.update(json.loads(line))
    kept = {name: actions["metaData"][name] for name in ("description", "partitionColumns", "configuration", "format")}
    schema = json.loads(actions["metaData"]["schemaString"])
    return {"protocol": actions["protocol"], "operation": actions["commitInfo"]["operation"], "schema": schema} | kept


@pytest.mark.parametrize("folder", ["plain", "a b#c?é", "p%20q"])
def test_same_as_sparks(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    here = Tables(spark, str(tmp_path / folder / "here"), CHANGELOG)[schemas.CORRECTIONS]
    there = Tables(spark, str(tmp_path / "there"), CHANGELOG)[schemas.CORRECTIONS]
    schema, text = schemas.CORRECTIONS_SCHEMA, "What was put right"
    here.create(schema, text, SETTINGS)
    here.create(schema, "is there")
    settings = {f"delta.{key}": value for key, value in SETTINGS.items()}
    there._create_through_spark(spark_schema(schema), text, settings)
    assert created(Path(here.uri)) == created(Path(there.uri))
    assert writer_of(Path(here.uri)) == ("Apache-Spark" if "%" in folder else "delta-rs")
    assert here.read().schema == there.read().schema


@pytest.mark.parametrize("asked", ["ka", "kab"])
def test_two_who_add_columns_at_one_moment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """As two drivers do that are started at once: the second adds what the first one has left."""
    table = Tables(spark, str(tmp_path), CHANGELOG)[schemas.CORRECTIONS]
    of = {name: pa.schema([(column, pa.int64()) for column in name]) for name in ("k", "ka", "kab")}
    add = Table.add_columns

    def after_another(self: Table, fields: Any) -> None:
        monkeypatch.setattr(Table, "add_columns", add)
        self.grow(of["ka"])
        add(self, fields)

    table.create(of["k"], "")
    monkeypatch.setattr(Table, "add_columns", after_another)
    table.grow(of[asked])
    assert table.read().columns == [*asked]
    monkeypatch.setattr(Table, "add_columns", lambda *_: pytest.fail("there is nothing to add"))
    table.grow(of[asked])


def test_columns_that_can_not_be_added_are_no_end_without_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = Tables(spark, str(tmp_path), CHANGELOG)[schemas.CORRECTIONS]
    table.create(pa.schema([("a", pa.int64())]), "")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        table.grow(pa.schema([("b", pa.int64()), ("B", pa.int64())]))


def test_columns_with_names_that_spark_refuses(spark: SparkSession, tmp_path: Path) -> None:
    """A table of deltalake takes them. Spark would refuse each more column, of any name."""
    table = Tables(spark, str(tmp_path), CHANGELOG)[schemas.CORRECTIONS]
    inner = pa.struct([("x = y", pa.int64())])
    table.create(pa.schema([("a b", pa.int64()), ("in", inner)]), "")
    table.grow(pa.schema([pa.field("c", pa.int64(), metadata={"comment": "its text"}), ("d;", pa.string())]))
    table.grow_struct(pa.field("in", pa.struct([*inner, ("{z}", pa.string()), ("plain", pa.timestamp("us", "UTC"))])))
    assert table.read().columns == ["a b", "in", "c", "d;"]
    assert table.read().schema["c"].metadata == {"comment": "its text"}
    assert table.read().select("in.*").columns == ["x = y", "{z}", "plain"]
    table.append(
        spark.sql(
            "select 1L as `a b`, named_struct('x = y', 1L, '{z}', 'z', 'plain', now()) as `in`, 2L as c, 's' as `d;`"
        ),
        "a",
        1,
    )
    assert table.read().select("`a b`", "c", "in.`{z}`").collect() == [(1, 2, "z")]


def test_names_that_spark_refuses_where_it_makes_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    table = Tables(spark, str(tmp_path / "per%20cent"), CHANGELOG)[schemas.CORRECTIONS]
    refused = "column 'a b' has a character that Delta's writer refuses"
    with pytest.raises(ConfigError, match=refused):
        table.create(pa.schema([("a b", pa.int64())]), "")
    table.create(pa.schema([("a", pa.int64())]), "")
    with pytest.raises(ConfigError, match=refused):
        table.grow(pa.schema([("a b", pa.int64())]))
