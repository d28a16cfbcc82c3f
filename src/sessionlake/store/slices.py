"""The store of windows: slices of keys, packed in blocks, in segments of their start; and lists of windows to send.

A slice is the longest stretch of time that no window's bound cuts. Windows are merges of consecutive slices, and no window is
stored. Slices of a key lie in blocks of equal length, one value each, so a change rewrites few slices, however long the
retention is. A block lies in one segment. Blocks older than the horizon are dropped as whole segments, without a scan.

Lists name slices (start and key) whose windows have something to send (`store/lists.py`).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, concatenated
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import block_keys, block_writes, items_of, read_blocks
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import Heads, pack_heads, unpack_heads
from sessionlake.store.lists import LISTS, ListedStore
from sessionlake.store.segmented import segment_interval

_FIELDS = [("start", "<i8"), ("count", "<i8"), ("revision", "<i8"), ("reach", "<i8")]
GRID = np.dtype([*_FIELDS, ("length", "<u4")])
"""Heads of slices of windows on a grid: start; events; the batch of the last change; the frontier before that batch."""
SLIDING = np.dtype([*_FIELDS, ("born", "<i8"), ("born_reach", "<i8"), ("length", "<u4")])
"""Heads of slices of sliding windows. They also have the batch that created the slice, and the frontier before that batch."""
_SIGN = 1 << 63


@dataclass(frozen=True)
class Slices:
    """Slices in columns; `codes` say which of some keys each belongs to, and states stay packed."""

    codes: Ints
    head: Heads
    state: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, field: str) -> Ints:
        return self.head[field].astype(np.int64, copy=False)

    def take(self, rows: Ints) -> "Slices":
        """Return the given rows, in that order."""
        return Slices(self.codes[rows], self.head[rows], self.state.take(pa.array(rows)))


@dataclass(frozen=True)
class Blocks:
    """Blocks by their numbers; `codes` say which of some keys each belongs to."""

    codes: Ints
    number: Ints


class SliceStore(ListedStore):
    """Slices and lists of a shard. `find`, `lists` and the `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(
        self,
        path: Path,
        *,
        block_us: int,
        bucket_us: int,
        retention_us: int,
        head: "np.dtype[np.void]",
        opened: OpenSegments = FileSegments,
    ) -> None:
        super().__init__(path, bucket_us, opened)
        self.block_us, self._head = block_us, head
        self._blocks = -(-segment_interval(retention_us) // block_us)
        """Blocks of a segment: at least KIP-94's interval."""

    def find(self, keys: pa.Array, codes: Ints, blocks: Ints) -> Slices:
        """Return the slices of pairs of a key's code and a block's number, which are distinct and ascending, in that order.

        Within a pair slices are ascending by start.
        """
        if not len(codes):
            return Slices(codes, np.zeros(0, self._head), pa.array([], pa.binary()))
        at, values = read_blocks(self._db, blocks // self._blocks, block_keys(keys, codes, blocks))
        owner, head, state = unpack_heads(values, self._head)
        return Slices(codes[at][owner], head, state)

    def writes(self, keys: pa.Array, slices: Slices, emptied: Blocks | None = None) -> pa.Table:
        """Return the writes that make `slices` the whole content of their blocks, and remove blocks that hold none.

        Slices are ascending by (code, start).
        """
        start = slices["start"]
        block = start // self.block_us
        at = np.flatnonzero((np.diff(slices.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0))
        values = pack_heads(slices.head.copy(), slices.state, np.diff(at, append=len(slices)))
        codes, block = slices.codes[at], block[at]
        if emptied is not None:
            codes, block = np.concatenate([codes, emptied.codes]), np.concatenate([block, emptied.number])
            values = concatenated([values, pa.nulls(len(emptied.codes), values.type)])
        return block_writes(block // self._blocks, block_keys(keys, codes, block), values)

    def apply(self, writes: pa.Table, meta: dict[str, bytes], oldest_start_us: int) -> None:
        """Apply writes, ascending by segment, and metadata atomically, then drop the whole segments before a time.

        Writes to segments that would be dropped at once are left out.
        """
        self.commit(writes, meta, oldest_start_us // self.block_us // self._blocks)

    def scan(self, key: bytes | None = None) -> tuple[list[bytes], Slices]:
        """Return the key of every stored slice, as a list that codes point into, and the slices: of all keys or a given key.

        Of all it reads the whole store: for inspection, and for queries without a key.
        """
        items = [item for n in self._db.segments if n != LISTS for item in items_of(self._db, n, key, 8)]
        values = pa.array([value for _, value in items], pa.binary())
        return [name[:-8] for name, _ in items], Slices(*unpack_heads(values, self._head))
