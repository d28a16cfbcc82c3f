"""Before the shuffle: the events of a key in a task become one part. A row that is taken back counts -1, and its states are inverted."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.base import Events, States
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Groups, Ints, argsort, concatenated, picked
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.errors import ConfigError
from sessionlake.operators.groups.table import COUNT
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.described import AggregatedSpec
from sessionlake.stream.ingest import judge
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK

PARTS = "parts"
"""Kind of the rows that go to shards: one for each key of a task."""


def parts_schema(spec: AggregatedSpec) -> pa.Schema:
    """Return the schema of parts: states as s0, s1, ... ."""
    types = [type_ for aggregate in spec.aggregates for type_ in aggregate.state]
    return pa.schema([("key", pa.string()), (COUNT, pa.int64()), *((f"s{i}", type_) for i, type_ in enumerate(types))])


def split_events(spec: AggregatedSpec, context: BatchContext, rows: Rows) -> Split:
    """Yield the parts of groups, and the tables of `Judged.asides`. No event is late or beyond retention."""
    judged = judge(spec.events, rows, context.clock_us, NO_WATERMARK)
    parts, accepted = judged.computed(lambda some: parts_of(spec, judged.events(some), judged.signs(some)), judged.good)
    yield from judged.asides(lambda: judged.events(accepted))
    newest = int(judged.checked.time_us[accepted].max(initial=NO_WATERMARK))
    newest = spec.events.moved_to(newest, context.clock_us)
    back = int((judged.signs(accepted) < 0).sum())
    yield Counted({"accepted": len(accepted), "taken_back": back, MAX_TIME: newest})
    yield Keyed(PARTS, parts["key"].combine_chunks(), parts)


def parts_of(spec: AggregatedSpec, events: Events, signs: Ints) -> pa.Table:
    """Merge the events of each key (`parts_schema`); `signs` are 1 of events that are added, -1 of those that are taken back."""
    codes, keys = sorted_codes(events.keys)
    order = argsort(codes, len(keys))
    # The codes are all numbers from 0 on, so that group i is that of keys[i].
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    groups = Groups(starts, len(order), lambda: keys)
    lifted = signed(spec.aggregates, [column for a in spec.aggregates for column in a.lift(events)], signs)
    index = pa.array(order)
    states = merge_states(spec.aggregates, [picked(column, index) for column in lifted], groups)
    count = np.add.reduceat(signs[order], starts) if len(starts) else signs
    return pa.Table.from_arrays([keys, pa.array(count), *states], schema=parts_schema(spec))


def signed(aggregates: Sequence[Aggregate], states: States, signs: Ints) -> States:
    """Return the state columns of all aggregates, those of rows with sign -1 inverted; ConfigError if an aggregate can't subtract."""
    back = np.flatnonzero(signs < 0)
    if not len(back):
        return states
    place = np.arange(len(signs))
    place[back] = len(signs) + np.arange(len(back))
    index, found = pa.array(place), States()
    for aggregate in aggregates:
        own = states[len(found) : len(found) + len(aggregate.state)]
        inverted = aggregate.inverted([column.take(pa.array(back)) for column in own])
        if inverted is None:
            raise ConfigError(
                f"aggregates.{aggregate.name}: can't take rows back, which the source does; write an aggregate that can, or remove it"
            )
        found += [concatenated([column, more]).take(index) for column, more in zip(own, inverted, strict=True)]
    return found
