"""Keys of several columns: the compact JSON array of the columns' texts, and the texts of such keys (docs/rules.md, rule 214)."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BACKSLASH, _QUOTE = b"\xff", b"\xfe"
"""Bytes that no UTF-8 has, for a backslash and a quote of a text."""


def joint_key(texts: Sequence[pa.Array]) -> pa.Array:
    """Return for each row a JSON array of its texts, compact; null if one of them is null."""
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
