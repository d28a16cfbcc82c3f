"""What the engine runs: one stateful operator, a function on one shard. The engine knows nothing of what it computes."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Inputs = Mapping[str, pa.Table]
"""Rows of one shard by kind; a kind without rows is absent."""


@dataclass(frozen=True)
class BatchContext:
    """What a batch is a function of, besides its rows and the stores."""

    batch_id: int
    commit_id: str
    state: Mapping[str, Any]
    """The operator's own small state after the previous batch; JSON values."""
    clock_us: int = 0
    """When the batch began, as the stream's offset log has it: the same on a rerun."""
    handed_in: bool = False
    """Rows that shards asked for (`ShardResult.needs`) are among the inputs."""


@dataclass(frozen=True)
class ShardResult:
    """What an operator makes of one shard's rows."""

    changes: pa.Table
    writes: pa.Table | None
    """The store's writes, applied once the batch is committed; None leaves the store as it is."""
    side: Mapping[str, pa.Table] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)
    """Numbers that the driver adds up over shards; names starting with `max_` are maximised instead."""
    needs: pa.Table | None = None
    """Rows to be handed in before the batch can be computed; the rest of the result is then ignored."""


def add_stats(total: dict[str, int], stats: Mapping[str, int]) -> None:
    """Add one shard's numbers to those of others."""
    for name, value in stats.items():
        total[name] = max(total.get(name, value), value) if name.startswith("max_") else total.get(name, 0) + value


class Operator(Protocol):
    """A stateful operator on shards; instances are pickled to the workers."""

    def split(self, batches: Iterator[pa.RecordBatch], context: BatchContext) -> Iterable[tuple[int, str, pa.Table]]:
        """Turn source rows into (shard, kind, rows); runs before the shuffle."""

    def open_store(self, path: Path) -> Any:
        """Open the store of a shard."""

    def apply(self, inputs: Inputs, store: Any, context: BatchContext) -> ShardResult:
        """Compute a shard; must not change the store and must be a function of its arguments."""

    def commit(self, store: Any, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes and metadata to the store, atomically."""

    def restored(self, inputs: Inputs, store: Any) -> pa.Table:
        """Return the writes that load handed-in state (inputs of kind `restore`) into an empty store."""


def shard_of(keys: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard of each key: CRC-32 of its UTF-8 bytes modulo the number of shards; never changes."""
    encoded = keys.dictionary_encode()
    uniques = encoded.dictionary.cast(pa.binary()).to_pylist()
    hashes = np.fromiter(map(zlib.crc32, uniques), np.int64, len(uniques)) % shards
    return hashes[encoded.indices.to_numpy(zero_copy_only=False)]


def by_shard(kind: str, table: pa.Table, shard: npt.NDArray[np.int64]) -> Iterator[tuple[int, str, pa.Table]]:
    """Cut a table into one of each shard that has rows."""
    if not table.num_rows:
        return
    order = np.argsort(shard, kind="stable")
    sorted_table = table.take(pa.array(order))
    numbers, starts = np.unique(shard[order], return_index=True)
    stops = np.append(starts[1:], len(order))
    for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield number, kind, sorted_table.slice(start, stop - start)
