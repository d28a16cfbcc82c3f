"""Rows as they came, for the archive: each that the decoder could read, before anything is judged (docs/rules.md, rule 245)."""

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import plain_text
from sessionlake.engine.operator import Aside, Split
from sessionlake.sources.contract import check
from sessionlake.sources.decoding.decoded import NO_ROW, WRONG_TYPE
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.whole import readable
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse.schemas import TIME

WHOLE = "whole"
"""Kind of the rows that a map task writes: rows of the table source_rows."""
ALL = "all"
"""The value of `pipeline.archive` with which they are kept."""
_PIECE_ROWS = 16_384
"""Rows whose texts are made at once: the texts of a piece of a file may be far larger than the read columns."""


def whole_rows(spec: EventSpec, rows: Rows, clock_us: int) -> Split:
    """Yield rows whole, with key and time as far as these can be read; nothing if they are not to be kept.

    An interrupted batch may ask for rows that its next attempt does not read whole, because the config says otherwise by now.
    Its whole rows are committed then: they are the first that a batch commits.
    """
    if spec.archive != ALL or rows.whole is None:
        return
    at = readable(rows.error, rows.table.num_rows, WRONG_TYPE, NO_ROW)
    if not len(at):
        return
    own = spec.shape.with_own(rows.table.take(pa.array(at)))
    checked = check(own, None, spec.columns, spec.max_key_bytes, clock_us)
    time_us = np.where(checked.no_time, clock_us, checked.time_us)
    places = pa.table({"key": plain_text(checked.key), "event_time": pa.array(time_us).cast(TIME)})
    for first in range(0, len(at), _PIECE_ROWS):
        whole, piece = rows.whole(at[first : first + _PIECE_ROWS]), places.slice(first, _PIECE_ROWS)
        yield Aside(WHOLE, pa.table({name: table[name] for table in (piece, whole) for name in table.column_names}))
