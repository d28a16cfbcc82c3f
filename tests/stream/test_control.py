"""Corrections as users and topics write them: what lacks something, or has a time that no date stands for, is malformed."""

from typing import Any

import pyarrow as pa
import pytest

from sessionlake.aggregates import build_aggregates
from sessionlake.engine.operator import Aside, Counted
from sessionlake.operators.sessions.control import kinds_of, limits_of
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.stream.control import split_corrections
from sessionlake.stream.ingest import DEAD, EventSpec
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import schemas

BEYOND = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""
REMOVE: dict[str, Any] = {"start_time": 1, "revision": 0}
PUT: dict[str, Any] = {"start_time": 1, "end_time": 2, "event_count": 1, "state": b""}


@pytest.mark.parametrize(
    ("row", "malformed"),
    [
        ({"kind": "tombstone", "start_time": BEYOND - 1, "revision": 1}, False),
        ({"kind": "tombstone", "start_time": BEYOND, "revision": 1}, True),
        ({"kind": "tombstone", "start_time": BEYOND}, True),
        ({"kind": "advance", "start_time": BEYOND}, True),
        ({"kind": "restate", "start_time": 1, "end_time": BEYOND, "event_count": 1, "state": b""}, True),
        ({"kind": "replace", "remove": [REMOVE, {**REMOVE, "start_time": BEYOND - 1}]}, False),
        ({"kind": "replace", "remove": [REMOVE, {**REMOVE, "start_time": BEYOND}]}, True),
        ({"kind": "replace", "remove": [REMOVE, {**REMOVE, "revision": None}]}, True),
        ({"kind": "replace", "remove": [REMOVE], "put": [{**PUT, "end_time": BEYOND}]}, True),
        ({"kind": "replace", "put": [{**PUT, "state": None}]}, True),
        ({"kind": "replace", "put": [PUT, {**PUT, "end_time": 0}]}, True),
        ({"kind": "replace", "put": [{**PUT, "event_count": 0}]}, True),
        ({"kind": "restate", "start_time": 1, "end_time": 1, "event_count": 0, "state": b""}, True),
        ({"kind": "restate", "start_time": 2, "end_time": 1, "event_count": 1, "state": b""}, True),
    ],
)
def test_a_correction_between_good_ones(row: dict[str, Any], malformed: bool) -> None:  # noqa: FBT001
    types = {"k": pa.string(), "t": pa.int64()}
    columns = EventColumns("k", "t", "us", None, (), types)
    spec = SessionizerSpec(
        EventSpec(TableDecoder(columns, None)), build_aggregates({}, types, with_id=False), SessionWindows(10, 10, 20)
    )
    good = {"kind": "tombstone", "start_time": 5, "revision": 1, "key": "k", "correction_id": "good"}
    rows = [good, {"key": "k", "correction_id": "one", **row}, {**good, "correction_id": "too"}]
    table = pa.Table.from_pylist(rows, schema=schemas.CORRECTIONS_SCHEMA)
    limits = limits_of(spec, spec.windows.bounds(NO_WATERMARK), 0)
    dead = [p.rows for p in split_corrections(kinds_of(spec), limits, table) if isinstance(p, Aside) and p.kind == DEAD]
    assert [found["source"].to_pylist() for found in dead] == ([["one"]] if malformed else [])
    if malformed:
        beyond = row.get("start_time") == BEYOND
        assert dead[0]["event_time"].is_null().to_pylist() == [beyond or "start_time" not in row]
        assert (str(BEYOND) in dead[0]["raw"][0].as_py()) == (str(BEYOND) in str(row))


def test_an_advance_goes_no_further_than_events_may_and_closing_takes() -> None:
    types = {"k": pa.string(), "t": pa.int64()}
    columns = EventColumns("k", "t", "us", None, (), types)
    windows, aggregates = SessionWindows(10, 20, 60), build_aggregates({}, types, with_id=False)
    spec = SessionizerSpec(EventSpec(TableDecoder(columns, None), max_future_skew_us=100), aggregates, windows)

    def advanced(to: int, *, watermark: int, clock: int) -> int | None:
        row = {"kind": "advance", "start_time": to, "correction_id": "a"}
        table = pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA)
        limits = limits_of(spec, windows.bounds(watermark), clock)
        pieces = list(split_corrections(kinds_of(spec), limits, table))
        (tally,) = [dict(p.stats) for p in pieces if isinstance(p, Counted)]
        refused = [
            reason for p in pieces if isinstance(p, Aside) and p.kind == DEAD for reason in p.rows["reason"].to_pylist()
        ]
        assert refused == (["too far in the future"] if tally["malformed"] else [])
        return tally.get("max_advance")

    assert advanced(1000 + 100 + 31, watermark=50, clock=1000) == 1131
    assert advanced(1000 + 100 + 32, watermark=50, clock=1000) is None
    # Drain closes what ended at the watermark, however old the clock.
    assert advanced(5000 + 31, watermark=5000, clock=0) == 5031
    assert advanced(5000 + 32, watermark=5000, clock=0) is None
    assert advanced(1131, watermark=NO_WATERMARK, clock=1000) == 1131
