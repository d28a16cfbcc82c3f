"""The windows in a store now, with aggregates, sent or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.texts import sorted_codes
from sessionlake.operators.counts import rules as counts
from sessionlake.operators.counts.operator import CountedWindows
from sessionlake.operators.counts.series import keys_of, partitions_of
from sessionlake.operators.counts.spec import Grid as CountGrid
from sessionlake.operators.counts.spec import Sessions as CountSessions
from sessionlake.operators.counts.spec import Sliding as SlidingCounts
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.shared.windowing.emission import EARLY, Progress
from sessionlake.operators.shared.windowing.slices import Pairs, SliceAxis, Windows, states_of
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.reading import windows_starting
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.store.series import SeriesStore
from sessionlake.store.slices import Slices, SliceStore
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.positions import PARTITION, POSITIONS
from sessionlake.stream.watermark import watermark_of

State = Mapping[str, Any]


@dataclass(frozen=True)
class WindowQuery:
    """A question for windows that overlap [low, high], for all keys or for `key`."""

    low: int
    high: int
    key: str | None

    @property
    def key_bytes(self) -> bytes | None:
        """The key as stores have it."""
        return None if self.key is None else self.key.encode()


def windows_in(
    operator: Windower | CountedWindows | Sessionizer, store: Any, state: State, asked: WindowQuery
) -> pa.Table:
    """Return the windows of a store: window_key, window_start, window_end, event_count and aggregates, by start and key.

    Ends are as in outputs: of tumbling and hopping windows by time exclusive, of all others inclusive.
    """
    if isinstance(operator, Windower):
        return _by_time(operator, store, state, asked)
    if isinstance(operator, CountedWindows):
        return _by_count(operator, store, state, asked)
    return _sessions(operator, store, state, asked)


def _by_time(operator: Windower, store: SliceStore, state: State, asked: WindowQuery) -> pa.Table:
    spec, windows = operator.spec, operator.spec.windows
    names, found = store.scan(asked.key_bytes)
    horizon = Progress.of(state).horizon_us(windows.span_us)
    keys, slices = _ordered(pa.array(names, pa.binary()), found.take(np.flatnonzero(found["start"] >= horizon)))
    there = windows_starting(windows, slices, max(horizon, asked.low - windows.span_us + 1), asked.high)
    shown = there.end - 1 if spec.is_sliding else there.end
    return _table(spec.aggregates, keys, slices, there, there.start, shown)


def _by_count(operator: CountedWindows, store: SeriesStore, state: State, asked: WindowQuery) -> pa.Table:
    spec, windows = operator.spec, operator.spec.windows
    names, found = store.scan(asked.key_bytes)
    series, slices = _ordered(
        pa.array(names, pa.binary()), found.take(np.flatnonzero(found["newest"] >= Progress.of(state).expired_us))
    )
    base = np.zeros(len(series), np.int64) if spec.per_key else partitions_of(series) * PARTITION
    numbers = _numbers(operator, series, slices, state)
    if isinstance(windows, SlidingCounts):
        rows = np.zeros(0, np.int64)  # each was full, and sent, with its message
        there = Windows(rows, rows, rows, rows, rows, pa.array([], pa.string()))
    elif isinstance(windows, CountSessions):
        rows = np.flatnonzero(counts.is_waiting(windows, slices, numbers.first, numbers.after))
        some = slices.take(rows)
        there = Windows(some.codes, some["start"], some["last"], rows, rows + 1, pa.repeat(EARLY, len(rows)))
    else:
        there = _count_grid(windows, slices, counts.all_windows(windows, slices, numbers))
    start, end = there.start + base[there.codes], there.end + base[there.codes]
    overlap = np.flatnonzero((end >= asked.low) & (start <= asked.high))
    return _table(spec.aggregates, keys_of(series), slices, there.take(overlap), start[overlap], end[overlap])


def _sessions(operator: Sessionizer, store: SegmentedSessionStore, state: State, asked: WindowQuery) -> pa.Table:
    spec = operator.spec
    bounds = spec.windows.bounds(watermark_of(state))
    names, found = store.scan(bounds.oldest_end_us)
    warm = until_of(spec.windows, found) >= bounds.expired_us
    rows = warm & (found.end >= asked.low) & (found.start <= asked.high)
    if asked.key_bytes is not None:
        rows &= np.array([name == asked.key_bytes for name in names], bool)[found.codes]
    found = found.take(np.flatnonzero(rows))
    keys = pa.array([names[code].decode() for code in found.codes.tolist()], pa.string())
    values = values_of(spec.aggregates, StateCodec(spec.aggregates).decode(found.state))
    return _rows(spec.aggregates, keys, found.start, found.end, found.count, values)


def _numbers(operator: CountedWindows, series: pa.Array, slices: Slices, state: State) -> counts.Numbers:
    """Return the starts of windows of series, and how far they have come."""
    since = np.ones(len(series), np.int64)
    since[slices.codes] = slices["first"]
    never = np.full(len(series), -(1 << 60))
    if operator.spec.per_key:
        after = since - 1
        after[slices.codes] = slices["last"]  # ascending: a series' last slice is written last
        return counts.Numbers(since, since, never, after)
    accepted = {int(p): int(n) for p, n in state.get(POSITIONS, {}).get(EVENTS, {}).items()}
    after = np.array([accepted.get(p, 0) for p in partitions_of(series).tolist()], np.int64)
    return counts.Numbers(np.ones(len(series), np.int64), since, never, after)


def _count_grid(windows: CountGrid, slices: Slices, found: Pairs) -> Windows:
    axis = SliceAxis(slices)
    low, high = axis.find(found.codes, found.time), axis.find(found.codes, found.time + windows.size)
    end = found.time + windows.size - 1
    return Windows(found.codes, found.time, end, low, high, pa.repeat(EARLY, len(found)))


def _ordered(names: pa.Array, found: Slices) -> tuple[pa.Array, Slices]:
    """Return distinct names, ascending, and slices by (code, start)."""
    codes, distinct = sorted_codes(names)
    slices = replace(found, codes=codes[found.codes])
    return distinct, slices.take(np.lexsort((slices["start"], slices.codes)))


def _table(
    aggregates: Sequence[Aggregate], keys: pa.Array, slices: Slices, windows: Windows, start: Ints, end: Ints
) -> pa.Table:
    keys = keys.cast(pa.string())
    count, states = states_of(aggregates, slices, windows, keys)
    values = values_of(aggregates, states)
    return _rows(aggregates, keys.take(pa.array(windows.codes)), start, end, count, values)


def _rows(
    aggregates: Sequence[Aggregate], keys: pa.Array, start: Ints, end: Ints, count: Ints, values: Sequence[pa.Array]
) -> pa.Table:
    columns: Mapping[str, Any] = {
        "window_key": keys,
        "window_start": start,
        "window_end": end,
        "event_count": count,
        **{a.name: v for a, v in zip(aggregates, values, strict=True)},
    }
    by = [("window_start", "ascending"), ("window_key", "ascending"), ("window_end", "ascending")]
    return pa.table(dict(columns)).sort_by(by)
