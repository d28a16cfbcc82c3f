"""Parts are added to the stored groups of their keys (docs/rules.md, rules 314 to 316); no store, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.base import States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Groups, Ints, concatenated, is_among, picked
from sessionlake.columnar.records import Records
from sessionlake.errors import PipelineStateError


@dataclass(frozen=True)
class Merged:
    """The groups that parts change."""

    codes: Ints
    """Those whose row is new or another one, ascending."""
    count: Ints
    states: States
    packed: pa.Array
    """The states, packed."""
    deleted: Ints
    """The codes of stored groups that have no events left."""


def merge(
    aggregates: Sequence[Aggregate], stored: Records, codes: Ints, count: Ints, states: States, keys: pa.Array
) -> Merged:
    """Return the groups after some parts. Several parts may have the same code, which is a place among `keys`.

    Stored codes are ascending and distinct. PipelineStateError if a group has too few events, or none of a value, for what is taken back.
    """
    codec = StateCodec(aggregates)
    touched = stored.take(np.flatnonzero(is_among(stored.codes, codes)))
    every = np.concatenate([touched.codes, codes])
    order = np.argsort(every, kind="stable")
    starts = np.flatnonzero(np.diff(every[order], prepend=-1))
    found = every[order][starts]
    groups = Groups(starts, len(order), lambda: keys.take(pa.array(found)))
    index = pa.array(order)
    both = [
        picked(concatenated([old, new]), index) for old, new in zip(codec.decode(touched.state), states, strict=True)
    ]
    merged = merge_states(aggregates, both, groups)
    total = np.add.reduceat(np.concatenate([touched.count, count])[order], starts) if len(starts) else count
    if (total < 0).any() or _overdrawn(aggregates, merged):
        raise PipelineStateError(
            "group: rows of a key are taken back that were not given, so the source is not the one that was read before; compute the groups again: `sessionlake rebuild CONFIG --warehouse NEW`"
        )
    packed = codec.encode(merged, len(found))
    # The stored ones are among those that were found, each once and in the same order.
    at = np.flatnonzero(is_among(found, touched.codes))
    same = np.zeros(len(found), bool)
    equal = pc.equal(packed.take(pa.array(at)), touched.state).to_numpy(zero_copy_only=False)
    same[at] = equal & (total[at] == touched.count)
    put = np.flatnonzero((total > 0) & ~same)
    some = pa.array(put)
    return Merged(
        found[put],
        total[put],
        [column.take(some) for column in merged],
        packed.take(some),
        found[at][total[at] == 0],
    )


def _overdrawn(aggregates: Sequence[Aggregate], states: States) -> bool:
    """Say whether a value was taken back that never came, as far as the states can tell."""
    first = 0
    for aggregate in aggregates:
        own = states[first : first + len(aggregate.state)]
        first += len(own)
        if aggregate.overdrawn(own).any():
            return True
    return False
