"""What a kind may ask of the loop beside rows: to wait before a batch, and to be told the order of its files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sessionlake.engine.operator import BatchContext, Split
from sessionlake.operators.windows.kind import Windows
from sessionlake.operators.windows.operator import Windower
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit
from tests.operators.windows.window_support import window_config
from tests.support import write_rows


def test_each_batch_waits_for_the_gate_and_knows_the_order_of_its_files(spark: SparkSession, tmp_path: Path) -> None:
    told, events = tmp_path / "told", tmp_path / "events"
    told.mkdir()

    # Classes of a function go to workers by value: they can't import the tests.
    class Telling(Windower):
        def split(self, rows: pa.Table, context: BatchContext) -> Split:
            (told / str(context.batch_id)).write_text(json.dumps(dict(context.files["events"])))
            yield from super().split(rows, context)

    class Ranking(Windows):
        numbers_messages = True

        def operator(self, live: Any = None) -> Telling:
            return Telling(super().operator(live).spec)

    config = window_config(tmp_path)
    source = config.source.model_copy(update={"max_files_per_batch": 2})
    for name in ("b.json", "a.json", "c.json"):
        write_rows(tmp_path, name, [{"key": "a", "time_us": 105, "v": 1}])
    committed: list[BatchCommit] = []
    at_gate: list[int] = []
    run(
        spark,
        config.model_copy(update={"source": source}),
        kind=Ranking,
        once=True,
        on_commit=committed.append,
        gate=lambda _: at_gate.append(len(committed)),
    )
    assert at_gate == [0, 1]
    ranks = [json.loads((told / str(batch)).read_text()) for batch in range(2)]
    # By the time they were written, which is also the order in which the source takes them.
    assert ranks == [{str(events / "b.json"): 0, str(events / "a.json"): 1}, {str(events / "c.json"): 0}]
