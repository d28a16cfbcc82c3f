"""One bucket of keys: slices computed again are compared with the stored ones, and closed windows with their slices. Pure Arrow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.codec import values_close
from sessionlake.aggregates.partials import Partials, concat, values_of
from sessionlake.columnar import records
from sessionlake.columnar.arrays import Bools, Ints, combined, within_group
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import Inputs
from sessionlake.operators.shared.windowing.emission import FOREVER, Firing
from sessionlake.operators.shared.windowing.emission import RESTATE as AGAIN
from sessionlake.operators.shared.windowing.slices import Pairs, SliceAxis, are_among, states_of
from sessionlake.operators.windows.control import WINDOW
from sessionlake.operators.windows.mapper import PARTS
from sessionlake.operators.windows.rules import grid_windows, sent_windows
from sessionlake.operators.windows.spec import Grid, TimeWindows, slices_are_windows
from sessionlake.store.slices import SLIDING, Slices
from sessionlake.stream.comparison import Comparison, Difference, are_forgotten, correction_schema, merged
from sessionlake.stream.recompute import LATE, REMOVED, RESTATE, STORED
from sessionlake.warehouse.schemas import TIME
from sessionlake.warehouse.streamed_files import BATCH

NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
_NONE = pa.schema([("key", pa.string()), ("start_us", pa.int64())]).empty_table()
SENT = "sent"
"""Kind of the rows of windows as they were sent last: key, start_us, event_count, v0, v1, ..."""


@dataclass(frozen=True)
class SliceScope:
    """The range of the comparison: slices that start in [low_us, high_us), and the windows with such a slice and ends up to `close_us`."""

    windows: TimeWindows
    low_us: int
    high_us: int
    close_us: int
    batch_id: int
    """The pinned batch."""
    rows_are_state: bool
    """Whether a window is its slice."""
    forgotten: Mapping[str, int] = field(default_factory=dict)
    """SHA-256 of keys that were erased, and the last batch whose events are to stay out."""

    def holds(self, start: Ints) -> Bools:
        """Say which slices, by their starts, are in the range."""
        found: Bools = (start >= self.low_us) & (start < self.high_us)
        return found


def compare_slices(aggregates: Sequence[Aggregate], scope: SliceScope, inputs: Inputs) -> Difference:
    """Compute a bucket's slices and return those that differ, and those whose closed windows were sent as something else.

    Parts that came before a tombstone which deleted their slice stay out, and so do the events of erased keys. A window whose
    row a tombstone deleted, and that nothing has sent again since, is named to stay away.
    """
    basis, late = _partials(aggregates, inputs, PARTS, RESTATE), _partials(aggregates, inputs, LATE)
    # Late events stand after all others.
    is_late = np.arange(len(basis) + len(late)) >= len(basis)
    basis = concat([basis, late])
    tables = [inputs.get(kind, _NONE) for kind in (STORED, REMOVED, SENT)]
    columns = [basis.keys, *(combined(table["key"]) for table in tables)]
    # One dictionary for the keys of all inputs, so that codes can be compared; then cut again by input.
    encoded = pa.concat_arrays(columns).dictionary_encode()
    cuts = np.cumsum([len(column) for column in columns])[:-1]
    codes, of_old, of_removed, of_sent = np.split(encoded.indices.to_numpy().astype(np.int64), cuts)
    keys = encoded.dictionary
    old = Records.from_table(of_old, inputs[STORED]) if STORED in inputs else Records.empty()
    removed, sent = (
        Pairs(code, table["start_us"].to_numpy()) for code, table in zip((of_removed, of_sent), tables[1:], strict=True)
    )
    out = are_forgotten(codes, basis.revision, scope.forgotten, keys)
    if slices_are_windows(scope.windows) and len(removed):
        out |= _before_removal(Pairs(codes, basis.start), basis.revision, removed, tables[1][BATCH].to_numpy())
    kept = np.flatnonzero(~out & scope.holds(basis.start))
    parts = basis.take(kept)
    parts = replace(parts, end=parts.start + scope.windows.slice_us - 1)
    new = merged(aggregates, parts, codes[kept], keys, group_events(codes[kept], parts.start, 0))
    withheld = removed.take(~are_among(removed, sent)).distinct()
    again = NO_PAIRS
    if not scope.rows_are_state:
        right = records.concat([old.take(np.flatnonzero(~scope.holds(old.start))), new])
        again = _sent_wrong(aggregates, scope, keys, right, sent, tables[2], withheld)
    found = _difference(aggregates, scope, keys, old, new, again, withheld)
    late_in = int((is_late & ~out).sum())
    return replace(found, stats=found.stats | {"late_included": late_in, "withheld": int(basis.count[out].sum())})


def _partials(aggregates: Sequence[Aggregate], inputs: Inputs, *kinds: str) -> Partials:
    tables = [inputs[kind].select(_names(aggregates)) for kind in kinds if kind in inputs]
    return concat([Partials.empty(aggregates), *map(Partials.from_table, tables)])


def _names(aggregates: Sequence[Aggregate]) -> list[str]:
    return Partials.empty(aggregates).to_table().column_names


def _before_removal(parts: Pairs, batch: Ints, removed: Pairs, removed_by: Ints) -> Bools:
    """Say which parts a later batch removed with their slice; parts of that batch or of a later one stay."""
    order, at = group_events(removed.codes, removed.time, 0)
    latest = np.maximum.reduceat(removed_by[order], at)
    rest = removed.take(order[at])
    row = Axis(rest.codes, rest.time).find(parts.codes, parts.time)
    out = are_among(parts, rest)
    out[out] = batch[out] < latest[row[out]]
    return out


def _sent_wrong(
    aggregates: Sequence[Aggregate],
    scope: SliceScope,
    keys: pa.Array,
    right: Records,
    sent: Pairs,
    rows: pa.Table,
    withheld: Pairs,
) -> Pairs:
    """Return the last slice of each closed window that was sent with other values, or not at all; the window has a slice in the range."""
    right = right.take(np.lexsort((right.start, right.codes)))
    # The times of changes do not say which windows were sent: all closed windows are compared.
    head = np.zeros(len(right), SLIDING)
    head["start"], head["count"], head["born"] = right.start, right.count, -1
    slices, firing = Slices(right.codes, head, right.state), Firing(AGAIN, -FOREVER, scope.close_us, 0)
    asked = Pairs(right.codes, right.start).take(scope.holds(right.start))
    if isinstance(scope.windows, Grid):
        asked = grid_windows(scope.windows, asked, firing)
    windows = sent_windows(scope.windows, slices, SliceAxis(slices), asked, firing)
    if not len(windows):
        return NO_PAIRS
    names = Pairs(windows.codes, windows.start)
    count, states = states_of(aggregates, slices, windows, keys)
    order = np.lexsort((sent.time, sent.codes))
    at = Axis(sent.codes[order], sent.time[order]).find(names.codes, names.time)
    there = np.flatnonzero(are_among(names, sent))
    wrong = ~are_among(names, withheld)
    if len(there):
        was = rows.take(pa.array(order[at[there]]))
        same = count[there] == was["event_count"].to_numpy()
        for number, value in enumerate(values_of(aggregates, states)):
            same &= values_close(value.take(pa.array(there)), combined(was[f"v{number}"]).cast(value.type))
        wrong[there[same]] = False
    # A replacement of any slice of a window sends it again; the last one is at `high - 1`.
    last = windows.high[wrong] - 1
    return Pairs(right.codes[last], right.start[last]).distinct()


def _difference(
    aggregates: Sequence[Aggregate],
    scope: SliceScope,
    keys: pa.Array,
    old: Records,
    new: Records,
    again: Pairs,
    withheld: Pairs,
) -> Difference:
    """Return a replacement for each slice that differs, and for slices whose windows must be sent again."""
    both = records.concat([old, new])
    order, at = group_events(both.codes, both.start, 0)
    slices = Pairs(both.codes, both.start).take(order[at]) if len(at) else NO_PAIRS
    compared = Comparison(
        aggregates, keys, old, new, order, at, scope.holds(both.start)[order], again=are_among(slices, again)
    )
    named = slices.take(compared.named)
    start, of = _around(named, withheld, scope.windows.span_us)
    found = compared.difference(
        correction_schema(),
        pa.array(named.time).cast(TIME),
        pa.array(np.full(len(named), scope.batch_id)),
        (of, start, np.full(len(start), WINDOW)),
    )
    stats = {
        "slices": int((compared.in_range & ~compared.is_new).sum()),
        "sent_again": len(named) - int(compared.differs.sum()),
    }
    return replace(found, stats=found.stats | stats)


def _around(slices: Pairs, withheld: Pairs, span_us: int) -> tuple[Ints, Ints]:
    """Return which withheld windows a change of each slice might send: their starts, and the rows of their slices."""
    if not len(withheld) or not len(slices):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # If a slice goes, all slices change that share a window with it: these lie within one span, and their windows within two.
    low, high = Axis(withheld.codes, withheld.time).between(
        slices.codes, slices.time - 2 * span_us, slices.time + span_us
    )
    number = np.maximum(high - low, 0)
    return withheld.time[np.repeat(low, number) + within_group(number)], np.repeat(np.arange(len(slices)), number)
