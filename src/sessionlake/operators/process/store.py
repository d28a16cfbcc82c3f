"""The store of a processor's shard: the state of each key, and an index of keys by the times of their first timers.

A key that has state has an entry in the index for its first event-time timer (of a state without timers, for its removal), and one for
its first clock timer: so the due keys are a range of the index, and are found without a scan of the states.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.operators.process.state import KeyState
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import BlockStore
from sessionlake.store.files import FileSegments
from sessionlake.store.segmented import WRITE_SCHEMA

STATES, DUE = (1 << 62) + 5, (1 << 62) + 6
"""The segments of the states and of the index."""
EVENT, CLOCK = b"e", b"c"
"""The first byte of entries of the index by event time and by the clock; then the time, 8 bytes that sort as it does; then the key."""
_SIGN, _TIME_BYTES = 1 << 63, 9
_PAGE = 10_000


@dataclass(frozen=True)
class Change:
    """The change of a key in a batch."""

    entries: list[bytes]
    """Those of the index before the batch."""
    after: KeyState | None
    """Its state; None for none."""


class StateStore(BlockStore):
    """States and timers of one shard. Reads and `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(self, path: Path, opened: OpenSegments = FileSegments) -> None:
        super().__init__(path, opened)

    def states(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the packed states of distinct keys, ascending; None for a key that has none."""
        return self._db.get(STATES, keys) if keys and STATES in self._db.segments else [None] * len(keys)

    def due(self, kind: bytes, low_us: int, high_us: int) -> list[bytes]:
        """Return the keys with an entry of a kind from one time, inclusive, to another, exclusive."""
        if DUE not in self._db.segments or low_us >= high_us:
            return []
        low, high = _entry(kind, low_us, b""), _entry(kind, high_us, b"")
        return [name[_TIME_BYTES:] for name, _ in self._db.items(DUE, low, high) if name < high]

    def first(self, kind: bytes, low_us: int, but: Mapping[bytes, object]) -> int | None:
        """Return the first time of a kind from one on, inclusive, of keys that are not among some; None for none."""
        if DUE not in self._db.segments:
            return None
        low, end = _entry(kind, low_us, b""), kind + b"\xff" * 9
        while True:
            page = self._db.items(DUE, low, end, _PAGE)
            found = next((name for name, _ in page if name[_TIME_BYTES:] not in but), None)
            if found is not None:
                return int.from_bytes(found[1:_TIME_BYTES], "big") - _SIGN
            if len(page) < _PAGE:
                return None
            low = page[-1][0] + b"\0"

    def apply(self, writes: pa.Table, meta: dict[str, bytes]) -> None:
        """Apply writes and metadata atomically."""
        self.commit(writes, meta, 0)

    def scan(self) -> Iterator[tuple[str, KeyState]]:
        """Yield every key with its state; for inspection."""
        for name, value in self._db.items(STATES) if STATES in self._db.segments else ():
            yield name.decode(), KeyState.unpacked(value)

    def entries(self) -> list[bytes]:
        """Return the index; for inspection."""
        return [name for name, _ in self._db.items(DUE)] if DUE in self._db.segments else []


def writes_of(changes: Mapping[bytes, Change], retention_us: int) -> pa.Table:
    """Return the writes of changed states and of their entries in the index."""
    states: dict[bytes, bytes | None] = {}
    index: dict[bytes, bytes | None] = {}
    for key, change in changes.items():
        states[key] = None if change.after is None else change.after.packed()
        index |= dict.fromkeys(change.entries)
        index |= dict.fromkeys(index_entries(key, change.after, retention_us), b"")
    segments = np.repeat([STATES, DUE], [len(states), len(index)])
    names, values = (
        [*sorted(states), *sorted(index)],
        [*(states[k] for k in sorted(states)), *(index[k] for k in sorted(index))],
    )
    arrays = [pa.array(segments, pa.int64()), pa.array(names, pa.binary()), pa.array(values, pa.binary())]
    return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)


def index_entries(key: bytes, state: KeyState | None, retention_us: int) -> list[bytes]:
    """Return the entries of the index that a key has with a state."""
    if state is None:
        return []
    times = {EVENT: state.event_us(retention_us), CLOCK: state.clock_us}
    return [_entry(kind, time_us, key) for kind, time_us in times.items() if time_us is not None]


def _entry(kind: bytes, time_us: int, key: bytes) -> bytes:
    return kind + (time_us + _SIGN).to_bytes(8, "big") + key
