"""The merge kernel (docs/rules.md, rule 4): partials of a key within the gap of one another become one.

`columnar.groups` says which lie together, `aggregates.partials.merge_states` merges them.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, Events
from sessionlake.aggregates.partials import Partials, merge_states
from sessionlake.columnar.arrays import Bools, Groups, plain_text
from sessionlake.columnar.groups import group_events


def premerge(aggregates: Sequence[Aggregate], events: Events, gap: int, close_us: int) -> tuple[Partials, Bools]:
    """Merge events into partials as far as that can't change what is late; return them, and which events were not merged.

    This runs before the shuffle, where stored sessions and other tasks' events are not known. A partial that ends at or
    after `close_us` is accepted whatever it meets (docs/rules.md, rule 5), so its events may travel as one. An older one may
    turn out late, and its events then go to late_events one by one: they must travel with their raw rows. The partials'
    keys are a dictionary; the mask is of the events, in their order.
    """
    encoded = events.keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order, starts = group_events(codes, events.time_us, gap)
    sizes = np.diff(starts, append=len(order))
    time = events.time_us[order]
    # Events are points, so that the last one of a group is its end.
    open_ = time[starts + sizes - 1] >= close_us if len(starts) else np.zeros(0, bool)
    unmerged = np.zeros(len(order), bool)
    if not open_.all():
        in_open = np.repeat(open_, sizes)
        unmerged[order[~in_open]] = True
        order, time, sizes = order[in_open], time[in_open], sizes[open_]
    at = np.cumsum(sizes) - sizes
    # Of the keys only those of groups are taken: to copy every event's text would cost more than all the rest.
    keys = pa.DictionaryArray.from_arrays(pa.array(codes[order[at]]), encoded.dictionary)
    rows = pa.array(order)
    states = [column.take(rows) for aggregate in aggregates for column in aggregate.lift(events)]
    merged = merge_states(aggregates, states, Groups(at, len(order), lambda: plain_text(keys)))
    return Partials(keys, time[at], time[at + sizes - 1], sizes, np.zeros(len(at), np.int64), merged), unmerged
