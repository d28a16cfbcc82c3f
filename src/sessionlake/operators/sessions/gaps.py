"""Gaps of events' own (docs/rules.md, rule 160): SQL over the event says after how much inactivity its session ends."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events
from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.column_types import TIME
from sessionlake.columnar.expressions import EVENT_TIME, KEY, Expression
from sessionlake.operators.sessions.spec import SessionizerSpec

OUT_OF_RANGE = "gap out of range"
"""Reason of an event whose gap is shorter than a microsecond or longer than `max_gap`."""


def own_gaps(spec: SessionizerSpec, expression: Expression, events: Events) -> tuple[Ints, Bools]:
    """Return each event's gap, and which are out of range."""
    columns: Mapping[str, pa.Array] = {
        **events.columns,
        KEY: events.keys,
        EVENT_TIME: pa.array(events.time_us).cast(TIME),
    }
    found = pc.fill_null(expression.evaluate(columns, len(events.time_us)), spec.windows.gap_us)
    gaps = found.to_numpy(zero_copy_only=False)
    return gaps, (gaps < 1) | (gaps > spec.windows.widest_us)


def refused_gaps(spec: SessionizerSpec, events: Events) -> Bools:
    """Return which events are refused for their own gaps."""
    if spec.gap_by is None:
        return np.zeros(len(events.time_us), bool)
    return own_gaps(spec, spec.gap_by, events)[1]


def open_until(spec: SessionizerSpec, events: Events) -> Ints | None:
    """Return until when each of some accepted events is open; None if that follows from its time alone."""
    if spec.gap_by is None:
        return None
    return spec.windows.open_until(
        events.time_us, np.clip(own_gaps(spec, spec.gap_by, events)[0], 1, spec.windows.widest_us)
    )
