"""A table is the same whichever way it was created."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake import schemas
from sessionlake.tables import Tables

SETTINGS = {"checkpointInterval": "20"}


def created(table: Path) -> dict[str, Any]:
    lines = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    actions: dict[str, Any] = {}
    for line in lines:
        actions.update(json.loads(line))
    kept = {name: actions["metaData"][name] for name in ("description", "partitionColumns", "configuration", "format")}
    schema = json.loads(actions["metaData"]["schemaString"])
    return {"protocol": actions["protocol"], "operation": actions["commitInfo"]["operation"], "schema": schema} | kept


@pytest.mark.parametrize("partitions", [(), ("kind", "job")])
def test_same_as_sparks(spark: SparkSession, tmp_path: Path, partitions: tuple[str, ...]) -> None:
    here, there = Tables(spark, str(tmp_path / "here")), Tables(spark, f"file://{tmp_path}/there")
    for tables in (here, there):
        tables.create(schemas.CORRECTIONS, schemas.CORRECTIONS_SCHEMA, "What was put right", partitions, **SETTINGS)
        tables.create(schemas.CORRECTIONS, schemas.CORRECTIONS_SCHEMA, "is there")
    assert created(Path(here.path(schemas.CORRECTIONS))) == created(
        Path(there.path(schemas.CORRECTIONS).removeprefix("file://"))
    )
    assert here.read(schemas.CORRECTIONS).schema == there.read(schemas.CORRECTIONS).schema
