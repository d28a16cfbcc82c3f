"""Windows read from the stores next to the stream, as a window store: stores hold slices, and windows are merged from them as they are read."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.columnar.axis import range_max
from sessionlake.config.load import Config
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.shared.windowing.slices import states_of
from sessionlake.operators.windows.reading import have_events_at_end, one_key, windows_starting
from sessionlake.operators.windows.section import WindowSection
from sessionlake.operators.windows.spec import Sliding
from sessionlake.serve.answer_columns import columns_of
from sessionlake.serve.decoder import Decoder, event_types, json_rows
from sessionlake.serve.encoded import Times, time_value
from sessionlake.serve.queryable import ReadOnlyTimedRows, Row, RowSerde, pack_row, unpack_row
from sessionlake.serve.result_rows import ResultRow
from sessionlake.store.layout import unpack_heads
from sessionlake.store.lists import LISTS
from sessionlake.store.slices import GRID, SLIDING, Slices
from sessionlake.store.standalone.interface import ReadOnlyWindowStore
from sessionlake.store.standalone.keys import WINDOW_KEYS, units
from sessionlake.store.standalone.serdes import Serdes
from sessionlake.store.standalone.windows import WindowSettings, WindowStoreOfRows
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse.batch_commit import BatchCommit

if TYPE_CHECKING:
    from sessionlake.serve.replica import View

_NUMBER = 8
"""Bytes of a block's number, which follow the key (`store/blocks.py`)."""
_FIRST_EVER, _LAST_EVER = -(1 << 61), 1 << 61
"""Times that no window goes beyond; sums of them and a window's length are still 64 bits."""


class WindowDecoder(Decoder):
    """Windows by time, of slices that no event can have made incomplete: those that begin at `complete_from_us` or later."""

    store_type = "window_store"

    def __init__(self, config: Config, commit: BatchCommit) -> None:
        section = cast("WindowSection", config.section)
        progress = Progress.of(commit.state)
        self.windows = section.windows
        pinned = Pinned.of_settings(commit.settings, commit.batch_id)
        self._aggregates = pinned.built(config, event_types(commit))
        self._codec, self._columns = StateCodec(self._aggregates), columns_of(self._aggregates)
        self._head = SLIDING if self.is_sliding else GRID
        self._close_us = progress.close_us
        self.live_from = max(progress.horizon_us(self.windows.span_us), _FIRST_EVER)
        self.complete_from_us = None if commit.watermark_us is None else self.live_from

    def open_store(self, view: "View") -> ReadOnlyWindowStore[str, Row]:
        """Return the windows as a window store."""
        settings = WindowSettings(units("us"), self.windows.size_us, retain_duplicates=False)
        values = RowSerde(view, unpack_row, hidden=("window_start", "window_end"))
        return WindowStoreOfRows("windows", _Windows(view, self), Serdes.string(), values, settings)

    @property
    def is_sliding(self) -> bool:
        """Whether windows begin and end at events."""
        return isinstance(self.windows, Sliding)

    def has(self, segment: int) -> bool:
        """Say whether it is a segment of slices."""
        return segment != LISTS

    def blocks(self, first_us: int, last_us: int) -> tuple[bytes, bytes]:
        """Return the first and the last number, as stores have them, of blocks that windows with starts in this range are made of."""
        block_us = self.windows.block_us
        low = (max(first_us, self.live_from) - 1) // block_us
        high = (min(last_us, _LAST_EVER) + self.windows.span_us) // block_us
        return _number(low), _number(max(low, high))

    def windows_of(self, key: bytes, values: Sequence[bytes], first_us: int, last_us: int) -> list[ResultRow]:
        """Return a key's windows that start within a time, of the values of its blocks, ascending by start."""
        slices = one_key(Slices(*unpack_heads(pa.array(values, pa.binary()), self._head)))
        slices = slices.take(np.flatnonzero(slices["start"] >= self.live_from))
        first, last = max(first_us, self.live_from), min(last_us, _LAST_EVER)
        if not len(slices) or first > last:
            return []
        there = windows_starting(self.windows, slices, first, last)
        if not len(there):
            return []
        count, states = states_of(self._aggregates, slices, there, pa.array([key], pa.binary()).cast(pa.string()))
        revision = range_max(slices["revision"], there.low, there.high)
        final = there.end <= self._close_us
        at_end = have_events_at_end(slices, there).to_numpy(zero_copy_only=False)
        heads = np.column_stack([there.start, there.end, count, revision, final, at_end]).tolist()
        packed = self._codec.encode(states, len(there)).to_pylist()
        name = key.decode()
        return [
            ResultRow(name, head[0], head[1], tuple(head), state) for head, state in zip(heads, packed, strict=True)
        ]

    def json_values(self, found: Sequence[ResultRow], times: Times) -> list[dict[str, Any]]:
        """Return windows by the names of the columns."""
        states = [self._codec.decode_one(of.packed) for of in found]
        starts, ends, counts, revisions, final, at_end = zip(*(of.head for of in found), strict=True)
        columns = {
            "window_start": [time_value(time, times) for time in starts],
            "window_end": [time_value(time - self.is_sliding, times) for time in ends],
            "event_count": counts,
            "revision": revisions,
            "final": map(bool, final),
            **({"at_event": map(bool, at_end)} if self.is_sliding else {}),
            **{column.name: column.json_values(states, times) for column in self._columns},
        }
        return json_rows(columns)


class _Windows(ReadOnlyTimedRows):
    """Windows by key and start; keys in the order of the shards' databases, those of a range's upper bound that begin it first."""

    keys = WINDOW_KEYS

    def __init__(self, view: "View", decoder: WindowDecoder) -> None:
        super().__init__(view)
        self._decoder = decoder

    @property
    def live_from(self) -> int:
        return self._decoder.live_from

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        del rank
        return next((data for *_, data in self.find(key, key, time, time, backward=False)), None)

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        first, last = self._decoder.blocks(time_from, time_to)
        if time_from > time_to:
            return
        one = key_from is not None and key_from == key_to
        for key in [cast("bytes", key_from)] if one else self._keys(key_from, key_to, first, last, backward):
            values = [value for _, value in self._blocks(key, first, last, backward=False)]
            found = self._decoder.windows_of(key, values, time_from, time_to)
            for window in reversed(found) if backward else found:
                yield key, window.start_us, 0, pack_row(window)

    def _keys(
        self,
        low: bytes | None,
        high: bytes | None,
        first: bytes,
        last: bytes,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[bytes]:
        """Yield each key from low to high that has blocks from first to last.

        A block's key is the key and a number, so that blocks of a key may come after those of keys that go on with other
        characters: of the upper bound's own beginnings they may lie behind all of the range, and these are looked up.
        """
        short = [] if high is None else [key for key in _beginnings(high) if low is None or key >= low]
        looked_up = (
            key for key in (reversed(short) if backward else short) if self._end_of(key, first, last, backward)
        )
        if not backward:
            yield from looked_up
        before = None
        bound = None if high is None else high + b"\xff" * _NUMBER
        for name, _ in self._items(self._numbers(), low, bound, backward):
            key, number = name[:-_NUMBER], name[-_NUMBER:]
            inside = (low is None or key >= low) and (high is None or key <= high) and first <= number <= last
            # If blocks of other keys lie among those of one, the one at which reading begins stands for all.
            if inside and key != before and key not in short and self._end_of(key, first, last, backward) == name:
                before = key
                yield key
        if backward:
            yield from looked_up

    def _blocks(self, key: bytes, first: bytes, last: bytes, *, backward: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the blocks of a key from first to last."""
        shard = self._view.segments_of(key.decode())
        if shard is None:
            return
        numbers = filter(self._decoder.has, shard.segments)
        each = [shard.items(number, key + first, key + last, backward=backward) for number in numbers]
        for name, value in heapq.merge(*each, key=itemgetter(0), reverse=backward):
            if len(name) == len(key) + _NUMBER:
                yield name, value

    def _end_of(self, key: bytes, first: bytes, last: bytes, backward: bool) -> bytes | None:  # noqa: FBT001
        """Return the block of a key at which reading begins; None if it has none."""
        return next((name for name, _ in self._blocks(key, first, last, backward=backward)), None)


def _number(block: int) -> bytes:
    return ((block + (1 << 63)) % (1 << 64)).to_bytes(_NUMBER, "big")


def _beginnings(key: bytes) -> list[bytes]:
    """Return the proper prefixes of a key, ascending."""
    return [text.encode() for text in ["", *accumulate(key.decode())][:-1]]
