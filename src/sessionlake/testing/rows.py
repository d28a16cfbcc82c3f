"""Plain rows (dicts) as the sessionizer's inputs."""

from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, Events
from sessionlake.aggregates.codec import StateCodec
from sessionlake.local.columns import type_of
from sessionlake.local.rows import Row, event_rows
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.warehouse.schemas import OPEN_UNTIL
from sessionlake.warehouse.schemas import corrections as corrections_schema

__all__ = ["Row", "correction_table", "event_rows", "type_of"]


def correction_table(spec: SessionizerSpec, corrections: list[tuple[int, Row]]) -> pa.Table:
    """Return plain corrections as rows of the table corrections; their id is their index among the batch's rows."""
    rows = []
    for index, row in corrections:
        one: dict[str, Any] = {
            "correction_id": f"{index:012d}",
            "kind": row["kind"],
            "key": row.get("key"),
            "start_time": row.get("start_us", row.get("time_us")),
            "end_time": row.get("end_us", row.get("time_us")),
            "revision": row.get("revision"),
            "event_count": row.get("event_count", 1),
            "state": _packed(spec, row) if row["kind"] == "restate" else None,
            OPEN_UNTIL: row.get("open_until_us"),
        }
        if row["kind"] == "replace":
            one["remove"] = [{"start_time": start, "revision": revision} for start, revision in row.get("remove", ())]
            one["put"] = [
                {
                    "start_time": p["start_us"],
                    "end_time": p["end_us"],
                    "event_count": p.get("event_count", 1),
                    "state": _packed(spec, {**p, "key": row.get("key")}),
                    OPEN_UNTIL: p.get("open_until_us"),
                }
                for p in row.get("put", ())
            ]
        rows.append(one)
    return pa.Table.from_pylist(rows, schema=corrections_schema(until=spec.windows.keeps_until))


def _packed(spec: SessionizerSpec, row: Row) -> bytes:
    """Return the packed state of a partial given by its columns, as of one event at its start, or by aggregates' values."""
    start = np.array([row.get("start_us", row.get("time_us", 0))], np.int64)
    states: list[pa.Array] = []
    columns = {name: pa.array([row.get(name)], spec.columns.types[name]) for name in spec.columns.inputs}
    event_id = None if spec.columns.id is None else pa.array([row.get(spec.columns.id)], pa.string())
    events = Events(pa.array([row.get("key")], pa.string()), start, columns, event_id)
    for aggregate in spec.aggregates:
        states += _state(aggregate, row, events, start)
    return StateCodec(spec.aggregates).encode(states, 1)[0].as_py()


def _state(aggregate: Aggregate, row: Row, events: Events, start: Any) -> list[pa.Array]:
    if aggregate.name in row and not any(name in row for name in aggregate.inputs):
        states = aggregate.from_value(pa.array([row[aggregate.name]], aggregate.value_type), start)
        if states is not None:
            return states
    if not aggregate.inputs and aggregate.value_type == pa.int64() and "event_count" in row:
        return [pa.array([row["event_count"]])]  # count(): the number of events of the partial
    return aggregate.lift(events)
