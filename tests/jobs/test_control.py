"""Corrections as users and topics write them: what lacks something, or has a time that no date stands for, is malformed."""

from typing import Any

import pyarrow as pa
import pytest

from sessionlake import schemas
from sessionlake.jobs.sessionizer.control import split_corrections
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.sessions.aggregates import build_aggregates
from sessionlake.sessions.windows import NO_WATERMARK, SessionWindows
from sessionlake.sources.columns import EventColumns

BEYOND = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""
REMOVE: dict[str, Any] = {"session_start": 1, "revision": 0}
PUT: dict[str, Any] = {"session_start": 1, "session_end": 2, "event_count": 1, "state": b""}


@pytest.mark.parametrize(
    ("row", "malformed"),
    [
        ({"kind": "tombstone", "session_start": BEYOND - 1, "revision": 1}, False),
        ({"kind": "tombstone", "session_start": BEYOND, "revision": 1}, True),
        ({"kind": "tombstone", "session_start": BEYOND}, True),
        ({"kind": "advance", "session_start": BEYOND}, True),
        ({"kind": "restate", "session_start": 1, "session_end": BEYOND, "event_count": 1, "state": b""}, True),
        ({"kind": "replace", "remove": [REMOVE, {**REMOVE, "session_start": BEYOND - 1}]}, False),
        ({"kind": "replace", "remove": [REMOVE, {**REMOVE, "session_start": BEYOND}]}, True),
        ({"kind": "replace", "remove": [REMOVE, {**REMOVE, "revision": None}]}, True),
        ({"kind": "replace", "remove": [REMOVE], "put": [{**PUT, "session_end": BEYOND}]}, True),
        ({"kind": "replace", "put": [{**PUT, "state": None}]}, True),
    ],
)
def test_a_correction_between_good_ones(row: dict[str, Any], malformed: bool) -> None:  # noqa: FBT001
    types = {"k": pa.string(), "t": pa.int64()}
    columns = EventColumns("k", "t", "us", None, (), types)
    spec = SessionizerSpec(SessionWindows(10, 10, 20), build_aggregates({}, types, with_id=False), columns, shards=1)
    good = {"kind": "tombstone", "session_start": 5, "revision": 1, "session_key": "k", "correction_id": "good"}
    rows = [good, {"session_key": "k", "correction_id": "one", **row}, {**good, "correction_id": "too"}]
    table = pa.Table.from_pylist(rows, schema=schemas.CORRECTIONS_SCHEMA)
    pieces = list(split_corrections(spec, spec.windows.bounds(NO_WATERMARK), table))
    dead = [found for _, kind, found in pieces if kind == "dead"]
    assert [found["source"].to_pylist() for found in dead] == ([["one"]] if malformed else [])
    if malformed:
        beyond = row.get("session_start") == BEYOND
        assert dead[0]["event_time"].is_null().to_pylist() == [beyond or "session_start" not in row]
        assert (str(BEYOND) in dead[0]["raw"][0].as_py()) == (str(BEYOND) in str(row))
