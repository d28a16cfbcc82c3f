"""A stream without input makes a batch where its kind has something due by the clock."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.windows.kind import Windows
from sessionlake.stream.kind import State
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from tests.operators.windows.window_support import tables_of, window_config
from tests.support import write_rows


class Due(Windows):
    """Windows of which something is due two seconds after the first batch."""

    at_us: int | None = None

    def due_us(self, state: State) -> Any:
        assert state["watermark_us"] == 105
        return Due.at_us


@pytest.mark.slow
def test_an_idle_stream_ticks_once_when_something_is_due(spark: SparkSession, tmp_path: Path) -> None:
    config = window_config(tmp_path)
    config = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"trigger": "0 seconds"})})
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": 105, "v": 1}])
    committed: list[BatchCommit] = []

    def on_commit(batch: BatchCommit) -> None:
        committed.append(batch)
        if batch.batch_id == 0:
            Due.at_us = time.time_ns() // 1000 + 2_000_000
        else:
            for query in spark.streams.active:
                query.stop()

    run(spark, config, kind=Due, on_commit=on_commit)
    assert [
        (b.counts.get("input", 0), b.counts.get("corrections", 0), b.counts.get("applied", 0)) for b in committed
    ] == [
        (1, 0, 0),
        (0, 1, 1),
    ]
    assert Due.at_us is not None
    assert committed[1].started_us >= Due.at_us
    (asked,) = tables_of(spark, config)[schemas.CORRECTIONS].read().collect()
    assert (asked.kind, asked.correction_id) == ("tick", f"tick-{Due.at_us}")
    (told,) = tables_of(spark, config)[schemas.CORRECTION_OUTCOMES].read().collect()
    assert (told.kind, told.outcome, told.batch_id) == ("tick", "applied", 1)
