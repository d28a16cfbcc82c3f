"""Rows with columns of four types, and an aggregate's values over them after a merge of random parts."""

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, Events, build_aggregates
from tests.operators.sessions.merging import Part, values_in

TYPES = {"i": pa.int64(), "d": pa.float64(), "s": pa.string(), "b": pa.bool_()}


class Row(NamedTuple):
    group: int
    time: int
    id: str | None
    i: int | None
    d: float | None
    s: str | None
    b: bool | None


def lifted(aggregate: Aggregate, rows: list[Row]) -> Part:
    columns = {name: pa.array([getattr(row, name) for row in rows], type_) for name, type_ in TYPES.items()}
    keys = pa.array([f"k{row.group}" for row in rows], pa.string())
    times = np.array([row.time for row in rows], np.int64)
    states = aggregate.lift(Events(keys, times, columns, pa.array([row.id for row in rows], pa.string())))
    assert tuple(column.type for column in states) == aggregate.state
    return Part(np.array([row.group for row in rows], np.int64), states)


def values_of(text: str, rows: list[Row], random: Random) -> dict[int, Any]:
    """Return each group's value, after the merge of random parts along a random tree."""
    (aggregate,) = build_aggregates({"a": text}, TYPES, with_id=True)
    rows = random.sample(rows, len(rows))
    cuts = sorted(random.sample(range(1, len(rows)), random.randrange(min(len(rows), 5)))) if len(rows) > 1 else []
    parts = [lifted(aggregate, rows[a:b]) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    return values_in(aggregate, parts, random)
