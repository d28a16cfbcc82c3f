"""A processor's pipeline through Spark: restarts, lost stores, jobs, and what is read of it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from tests.operators.process import processors
from tests.operators.process.pipeline_support import FILES, TYPES, config_of, rows_of
from tests.oracle.process import Machine
from tests.support import write_rows


def output_of(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    rows = Tables.of(spark, config)["output_changelog"].read().collect()
    names = ("output_key", "position", "ordinal")
    found = [(*(row[n] for n in names), {name: row[name] for name in TYPES}) for row in rows]
    return sorted(found, key=str)


@pytest.mark.parametrize("of", [pytest.param("Sessions", marks=pytest.mark.slow), "Raising"])
def test_restarts_and_lost_stores_change_nothing(spark: SparkSession, tmp_path: Path, of: str) -> None:
    config = config_of(tmp_path, of)
    machine = Machine(getattr(processors, of), TYPES, 30, 0)
    for number in range(len(FILES)):
        write_rows(tmp_path, f"{number}.json", rows_of(number))
        machine.batch(rows_of(number))
        if number == 2:
            shutil.rmtree(config.driver_store_dir)
        if number == 3:
            config = config_of(tmp_path, of, shards=3)
        run(spark, config, once=True)
    expected = sorted(((key, *place, values) for key, _, *place, values in machine.sent), key=str)
    assert output_of(spark, config) == expected
    letters = Tables.of(spark, config)["dead_letters"].read().collect()
    assert sorted(row.event_time is not None and row.key for row in letters if row.kind == "event") == sorted(
        key for key, _ in machine.dead
    )
    assert all("processors.py:" in row.reason for row in letters if row.kind == "event")
