"""The windows that the messages of a side of a join lie in."""

from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, within_group
from sessionlake.columnar.axis import Axis, range_max
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.texts import sorted_codes
from sessionlake.operators.joins.axis import Grid, Session, Sliding, axis_of
from sessionlake.operators.joins.spec import JoinSpec
from sessionlake.operators.shared.sides.names import LEFT
from sessionlake.store.messages import Messages

Named = tuple[list[bytes], Messages]
"""Messages, and the keys that their codes point into."""


def side_windows(spec: JoinSpec, side: str, own: Named, others: Named, start: int, end: int) -> list[dict[str, Any]]:
    """Return the windows of a side's messages that overlap [start, end], by start and key; `others` are of the other side."""
    (names, found), (other_names, other) = own, others
    codes, keys = sorted_codes(pa.array([*names, *other_names], pa.binary()))
    mine, theirs = codes[: len(names)][found.codes], codes[len(names) :][other.codes]
    order = np.lexsort((found["position"], found["x"], mine))
    at, x, position = mine[order], found["x"][order], found["position"][order]
    of, low, high = _bounds(spec, side, at, x, np.concatenate([mine, theirs]), np.concatenate([found["x"], other["x"]]))
    first, last = Axis(at, x).between(of, low, high)
    some = np.flatnonzero((last > first) & (high >= start) & (low <= end))
    of, low, high, first, last = (column[some] for column in (of, low, high, first, last))
    exclusive = 1 if isinstance(axis_of(spec), Grid) else 0
    table = pa.table(
        {
            "window_key": keys.take(pa.array(of)).cast(pa.string()),
            "window_start": low,
            "window_end": high + exclusive,
            "event_count": last - first,
            "first_position": -range_max(-position, first, last),
            "last_position": range_max(position, first, last),
        }
    )
    rows: list[dict[str, Any]] = table.sort_by([(n, "ascending") for n in ("window_start", "window_key")]).to_pylist()
    return rows


def _bounds(spec: JoinSpec, side: str, codes: Ints, x: Ints, all_codes: Ints, all_x: Ints) -> tuple[Ints, Ints, Ints]:
    """Return code, least and greatest place of all windows, each once."""
    axis = axis_of(spec)
    if isinstance(axis, Sliding):
        own = axis.left if side == LEFT else axis.right
        return _distinct(codes, x - own, x)
    if isinstance(axis, Session):
        order, starts = group_events(all_codes, all_x, axis.gap)
        sizes = np.diff(starts, append=len(order))
        return all_codes[order[starts]], all_x[order[starts]], all_x[order[starts + sizes - 1]]
    assert isinstance(axis, Grid)  # noqa: S101 (there are no more kinds)
    last = (x - axis.offset) // axis.advance * axis.advance + axis.offset
    first = -((axis.offset - (x - axis.size + 1)) // axis.advance) * axis.advance + axis.offset
    number = (last - first) // axis.advance + 1
    low = np.repeat(first, number) + within_group(number) * axis.advance
    return _distinct(np.repeat(codes, number), low, low + axis.size - 1)


def _distinct(codes: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    order, starts = group_events(codes, low, 0)
    rows = order[starts]
    return codes[rows], low[rows], high[rows]
