"""Keys, their shards, and keys of several columns: a compact JSON array of the columns' texts (docs/rules.md, rule 214)."""

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_hash = zlib.crc32
"""Changing it moves every key of every pipeline to another shard."""


def shard_of_key(key: bytes, shards: int) -> int:
    """Return a key's shard: the CRC-32 of its UTF-8 bytes modulo the number of shards.

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
        # All rows are of shard 0, for example with a single shard: nothing is moved.
        yield 0, kind, table
        return
    # Stable: a shard's rows stay in order.
    order = np.argsort(shard, kind="stable")
    sorted_table = table.take(pa.array(order))
    numbers, starts = np.unique(shard[order], return_index=True)
    stops = np.append(starts[1:], len(order))
    for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops.tolist(), strict=True):
        yield number, kind, sorted_table.slice(start, stop - start)


_BACKSLASH, _QUOTE = b"\xff", b"\xfe"
"""Bytes outside of UTF-8, for a text's backslash and quote."""


def joint_key(texts: Sequence[pa.Array]) -> pa.Array:
    """Return each row's texts as a compact JSON array; null if a text is null."""
    quoted = [pc.binary_join_element_wise('"', _escaped(text), '"', "") for text in texts]
    return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*quoted, ","), "]", "")


def _escaped(text: pa.Array) -> pa.Array:
    """Return texts as they stand in JSON's strings."""
    for character in '\\"':
        text = pc.replace_substring(text, character, f"\\{character}")
    if pc.any(pc.match_substring_regex(text, "[\\x00-\\x1f]")).as_py():
        for number in range(0x20):
            text = pc.replace_substring(text, chr(number), f"\\u{number:04x}")
    return text


def key_parts(keys: pa.Array, columns: int) -> list[pa.Array]:
    """Return the texts of each column of keys that `joint_key` made; null for any other text.

    >>> [part.to_pylist() for part in key_parts(pa.array(['["acme","u7"]', "else"]), 2)]
    [['acme', None], ['u7', None]]
    """
    bare = keys.cast(pa.binary())
    escaped = pc.any(pc.match_substring(bare, b"\\")).as_py()
    if escaped:
        bare = pc.replace_substring(bare, b"\\\\", _BACKSLASH)
        bare = pc.replace_substring(bare, b'\\"', _QUOTE)
    lists = pc.split_pattern(pc.binary_slice(bare, 2, -2), b'","')
    right = pc.and_(pc.starts_with(bare, b'["'), pc.ends_with(bare, b'"]'))
    right = pc.fill_null(pc.and_(right, pc.equal(pc.list_value_length(lists), columns)), fill_value=False)
    if not pc.all(right).as_py():
        lists = pc.if_else(right, lists, pa.scalar([None] * columns, lists.type))
    flat = pc.list_flatten(lists)
    parts = [flat.take(pa.array(np.arange(at, len(flat), columns))) for at in range(columns)]
    return [_unescaped(part) if escaped else part.cast(pa.string()) for part in parts]


def _unescaped(bare: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(bare, b"\\u")).as_py():
        for number in range(0x20):
            bare = pc.replace_substring(bare, f"\\u{number:04x}".encode(), bytes([number]))
    bare = pc.replace_substring(bare, _QUOTE, b'"')
    return pc.replace_substring(bare, _BACKSLASH, b"\\").cast(pa.string())
