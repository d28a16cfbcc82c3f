"""Keys and the shards they belong to."""

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def shard_of(keys: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard of each key: CRC-32 of its UTF-8 bytes modulo the number of shards; never changes.

    `keys` is text, plain or as a dictionary; each distinct key is hashed once.
    """
    encoded = keys.dictionary_encode()
    uniques = encoded.dictionary.cast(pa.binary()).to_pylist()
    hashes = np.fromiter(map(zlib.crc32, uniques), np.int64, len(uniques)) % shards
    return hashes[encoded.indices.to_numpy(zero_copy_only=False)]


def by_shard(kind: str, table: pa.Table, shard: npt.NDArray[np.int64]) -> Iterator[tuple[int, str, pa.Table]]:
    """Cut a table into one of each shard that has rows, as (shard, kind, rows); rows keep their order."""
    if not table.num_rows:
        return
    if not shard.any():
        # As of all tables of one shard: nothing is moved.
        yield 0, kind, table
        return
    order = np.argsort(shard, kind="stable")
    sorted_table = table.take(pa.array(order))
    numbers, starts = np.unique(shard[order], return_index=True)
    stops = np.append(starts[1:], len(order))
    for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield number, kind, sorted_table.slice(start, stop - start)
