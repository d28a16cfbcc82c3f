"""The table of batches' inputs tells of each side of a join how many messages came, also in a warehouse of before it did."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.stream import input_log
from sessionlake.stream.input_log import BATCH_INPUTS, BATCH_INPUTS_SCHEMA, batch_inputs, inputs_schema
from sessionlake.stream.run import run
from sessionlake.warehouse.schemas import PER_INPUT
from sessionlake.warehouse.tables import Tables
from tests.operators.joins.join_support import join_config, read, write


def test_the_columns_of_an_input() -> None:
    assert inputs_schema([]) == BATCH_INPUTS_SCHEMA
    names = inputs_schema(["left", "right"]).names[len(BATCH_INPUTS_SCHEMA) :]
    counts = [
        "left_input",
        "left_accepted",
        "left_late",
        "left_dead",
        "left_dropped",
        "left_filtered",
        "left_duplicate",
    ]
    assert names == counts + [name.replace("left", "right") for name in counts]


@pytest.mark.slow
def test_messages_by_side(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_log, "_SAVE_AFTER", 1)
    config = join_config(tmp_path)
    write(tmp_path, "left", 0, [{"id": "a", "time_us": 203, "v": 1}, {"id": "b", "time_us": 204, "v": 1}])
    write(tmp_path, "right", 0, [{"id": "a", "time_us": 205, "w": 1}])
    with monkeypatch.context() as before:
        before.setattr(input_log, "inputs_schema", lambda _: BATCH_INPUTS_SCHEMA)
        before.setattr(input_log.schemas, "PER_INPUT", ())
        run(spark, config, once=True)
    # One is late, one beyond retention, one without the equal field.
    rows = [{"id": "a", "time_us": at, "v": 2} for at in (206, 185, 100)]
    write(tmp_path, "left", 1, [*rows, {"id": None, "time_us": 206, "v": 2}])
    run(spark, config, once=True)
    first, second = sorted(read(config, BATCH_INPUTS).to_pylist(), key=lambda row: row["batch_id"])
    names = [(side, name) for side in ("left", "right") for name in PER_INPUT]
    assert [first[f"{side}_{name}"] for side, name in names] == [None] * 14
    assert [second[f"{side}_{name}"] for side, name in names] == [4, 1, 1, 2, *[0] * 10]
    tables = Tables.of(spark, config)
    assert [inputs.batch_id for inputs in batch_inputs(tables, config, 1)] == [0, 1]
    comments = {field.name: field.metadata.get("comment") for field in tables[BATCH_INPUTS].read().schema}
    assert comments["left_late"] == "Events of left: past grace"
