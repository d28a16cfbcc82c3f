"""The partials that a bucket's sessions are computed from, out of the rows that come together in it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.partials import Partials, concat
from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Inputs
from sessionlake.operators.sessions.mapper import ALONE, MERGED
from sessionlake.stream.recompute import INCLUDED, LATE, RESTATE


def bring_together(aggregates: Sequence[Aggregate], inputs: Inputs) -> tuple[Partials, Bools]:
    """Return all partials of the basis, and which of them are late events taken in."""
    pieces = [Partials.empty(aggregates)]
    if MERGED in inputs:
        pieces.append(Partials.from_table(inputs[MERGED]))
    late = inputs.get(LATE)
    if ALONE in inputs:
        alone = Partials.from_table(inputs[ALONE])
        pieces.append(alone if late is None else alone.take(np.flatnonzero(~_was_late(alone, late))))
    if RESTATE in inputs:
        pieces.append(Partials.from_table(inputs[RESTATE]))
    before = sum(map(len, pieces))
    if late is not None:
        some = late.filter(late[INCLUDED]).drop_columns([INCLUDED])
        pieces.append(Partials.from_table(some))
    basis = concat(pieces)
    return basis, np.arange(len(basis)) >= before


def _was_late(alone: Partials, late: pa.Table) -> Bools:
    """Say which events were judged late: events of one key, time and batch always are together."""
    keys = pa.concat_arrays([alone.keys, combined(late["key"])]).dictionary_encode()
    codes = keys.indices.to_numpy()
    time = np.concatenate([alone.start, late["start_us"].to_numpy()])
    batch = np.concatenate([alone.revision, late["revision"].to_numpy()])
    order = np.lexsort((batch, time, codes))
    same = np.ones(len(order), bool)
    for column in (codes[order], time[order], batch[order]):
        same[1:] &= column[1:] == column[:-1]
    same[:1] = False
    starts = np.flatnonzero(~same)
    is_late = np.logical_or.reduceat(order >= len(alone), starts)
    out = np.zeros(len(order), bool)
    out[order] = is_late[np.cumsum(~same) - 1]
    return out[: len(alone)]
