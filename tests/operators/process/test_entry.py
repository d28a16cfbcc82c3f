"""A processor by its config alone, without Spark: the harness, the public pipeline, clock timers, and times that Python does not have."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.config.load import parse_config
from sessionlake.config.operators import OPERATORS
from sessionlake.engine.operator import Aside, BatchContext, Keyed
from sessionlake.local.columns import types_of
from sessionlake.local.rows import table_rows
from sessionlake.local.source import LocalSource, local_config, local_operator
from sessionlake.operators.process.operator import Processors
from sessionlake.operators.process.output import OutputColumns
from sessionlake.sources.decoding.rows import Origin
from sessionlake.standalone import Pipeline
from sessionlake.stream.described_kind import described_kind
from sessionlake.testing import Harness
from tests.operators.process.pipeline_support import OUTPUT, raw_of

TIME = pa.timestamp("us", "UTC")
YEAR_10000_US = 253_402_300_800_000_000


def row(at: int, kind: str = "a", value: int = 9) -> dict[str, Any]:
    return {"key": "a", "time_us": at, "kind": kind, "value": value}


def test_a_clock_timer_is_due_for_the_driver_and_fires_with_a_tick(tmp_path: Path) -> None:
    raw = raw_of("Clocked")
    config = parse_config(raw, tmp_path)
    types = {"key": pa.string(), "kind": pa.string(), "value": pa.int64()}
    kind = described_kind(Processors)(config, Processors.of(config, {"events": LocalSource(types)}, None).spec)
    with Harness(raw, shards=3) as harness:
        harness.process([row(0, "b")], 100)
        assert kind.due_us(harness.state) == 110
        assert not harness.tick(109).changes
        harness.lose_stores()
        (sent,) = harness.tick(110).changes
        assert (sent["text"], sent["number"], sent["flag"]) == ("b", 110, True)
        assert kind.due_us(harness.state) is None
        assert not harness.tick(200).changes


def test_an_advance_fires_event_time_timers_and_nothing_closes_them() -> None:
    assert described_kind(Processors).closing_watermark is None
    with Harness(raw_of("Two")) as harness:
        harness.process([row(10)])
        assert not harness.advance(15).changes
        assert [sent["text"] for sent in harness.advance(16).changes] == ["timer"]


def test_timers_go_on_in_a_directory_after_its_last_flush(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "state", raw_of("Two")) as run:
        run.add_message(row(10), clock_us=0)
        run.flush()
    with Pipeline(tmp_path / "state", raw_of("Two")) as run:
        run.get_result()
        run.add_message({**row(20), "key": "b"}, clock_us=0)
        assert ("a", "timer") in [(sent["output_key"], sent["text"]) for sent in run.get_result()]


def test_a_time_outside_the_years_1_to_9999_is_a_dead_letter() -> None:
    config = {
        "source": {"kind": "files", "path": "events", "format": "parquet"},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "process": {
            "class": "tests.operators.process.processors:Order",
            "columns": ["at", "day"],
            "retention": "1 day",
            "output": OUTPUT,
        },
    }
    table = pa.table(
        {
            "key": ["a"] * 5,
            "time_us": [0, 1, 2, 3, 4],
            "at": pa.array([0, YEAR_10000_US, None, 0, -YEAR_10000_US], TIME),
            "day": pa.array([0, 0, None, 2_932_897, 0], pa.int32()).cast(pa.date32()),
        }
    )
    operator = local_operator(local_config(config), {"events": types_of(table)})
    rows = table_rows(operator.columns("events"), table, np.arange(5), Origin(0, (0, 0, 0)))
    pieces = list(operator.split_rows(BatchContext(0, "c", {}), "events", 0, rows))
    dead = [row for piece in pieces if isinstance(piece, Aside) for row in piece.rows.to_pylist()]
    assert [(row["source"], row["reason"]) for row in dead] == [
        ("1", "column 'at' lies outside of the years 1 to 9999"),
        ("4", "column 'at' lies outside of the years 1 to 9999"),
        ("3", "column 'day' lies outside of the years 1 to 9999"),
    ]
    sent = [piece.rows for piece in pieces if isinstance(piece, Keyed)]
    assert [row for some in sent for row in some["time_us"].to_pylist()] == [0, 2]


@pytest.mark.parametrize(
    ("text", "fits"),
    [("9999-12-31T23:59:59+00:00", True), ("9999-12-31T23:59:59-01:00", False), ("2020-01-01T00:00:00", False)],
)
def test_a_time_that_is_sent_has_a_zone_and_is_in_range(text: str, *, fits: bool) -> None:
    columns = OutputColumns({"at": "timestamp"})
    if fits:
        assert columns.checked({"at": datetime.fromisoformat(text)})
    else:
        with pytest.raises(TypeError, match="column 'at' is timestamp"):
            columns.checked({"at": datetime.fromisoformat(text)})


def test_jobs_that_need_another_order_say_why() -> None:
    lacks = OPERATORS["process"].lacks
    assert set(lacks) == {"restating", "redeeming", "recompute"}
    assert "rebuild" in lacks["recompute"]
