"""Keys and the shards they belong to."""

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_hash = zlib.crc32
"""Changing it moves every key of every pipeline to another shard."""


def shard_of_key(key: bytes, shards: int) -> int:
    """Return the shard of a key: the CRC-32 of its UTF-8 bytes modulo the number of shards.

    >>> shard_of_key(b"user-1", 8)
    4
    """
    return _hash(key) % shards


def shard_of(keys: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard of each key, as `shard_of_key` does for one.

    `keys` is text, plain or as a dictionary. Each distinct key is hashed once.

    >>> shard_of(pa.array(["user-1", "user-1"]), 8).tolist() == [shard_of_key(b"user-1", 8)] * 2
    True
    """
    encoded = keys.dictionary_encode()
    uniques = encoded.dictionary.cast(pa.binary()).to_pylist()
    numbers = np.fromiter(map(_hash, uniques), np.int64, len(uniques)) % shards
    return numbers[encoded.indices.to_numpy(zero_copy_only=False)]


def by_shard(kind: str, table: pa.Table, shard: npt.NDArray[np.int64]) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield (shard, kind, rows) for each shard that has rows; rows keep their order.

    >>> table = pa.table({"x": [1, 2, 3]})
    >>> [(shard, rows["x"].to_pylist()) for shard, _, rows in by_shard("events", table, np.array([1, 0, 1]))]
    [(0, [2]), (1, [1, 3])]
    """
    if not table.num_rows:
        return
    if not shard.any():
        # All rows are of shard 0, for example if there is only one shard: nothing is moved.
        yield 0, kind, table
        return
    order = np.argsort(shard, kind="stable")
    sorted_table = table.take(pa.array(order))
    numbers, starts = np.unique(shard[order], return_index=True)
    stops = np.append(starts[1:], len(order))
    for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield number, kind, sorted_table.slice(start, stop - start)
