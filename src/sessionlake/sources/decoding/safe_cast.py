"""Casts that lose single values, never a column."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


_TAIL = r"[\x80-\xbf]"
_UTF_8 = (
    rf"(?s)\A(?:[\x00-\x7f]|[\xc2-\xdf]{_TAIL}|\xe0[\xa0-\xbf]{_TAIL}|[\xe1-\xec\xee\xef]{_TAIL}{{2}}|\xed[\x80-\x9f]{_TAIL}"
    rf"|\xf0[\x90-\xbf]{_TAIL}{{2}}|[\xf1-\xf3]{_TAIL}{{3}}|\xf4[\x80-\x8f]{_TAIL}{{2}})*\z"
)
"""Bytes of UTF-8 (RFC 3629, section 4). RE2 takes each byte of a binary value for a character."""
Mask = npt.NDArray[np.bool_]


def nulls_of(values: pa.Array) -> Mask:
    """Mark the null rows."""
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    mask: Mask = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def without_dictionary(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Give one plain array."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return flat.dictionary_decode() if pa.types.is_dictionary(flat.type) else flat


def text_dictionary(values: pa.ChunkedArray) -> pa.DictionaryArray | None:
    """Make a dictionary column a text column; None if it is no dictionary, has nulls, or is not all UTF-8."""
    if not pa.types.is_dictionary(values.type) or values.type.value_type not in TEXTS or values.null_count:
        return None
    flat = values.combine_chunks()
    if not isinstance(flat, pa.DictionaryArray) or flat.dictionary.null_count:
        return None
    binary = pa.large_binary() if pa.types.is_large_string(flat.type.value_type) else pa.binary()
    try:
        return pa.DictionaryArray.from_arrays(flat.indices, flat.dictionary.cast(binary).cast(pa.string()))
    except pa.ArrowInvalid:
        return None


def cast_each(values: pa.Array, target: pa.DataType, options: pc.CastOptions | None = None) -> pa.Array:
    """Cast with null if a value can't be cast, or bytes are no UTF-8; halves the input until other bad values stand alone."""
    options = options or pc.CastOptions.safe(target)
    try:
        return pc.cast(values, options=options)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(values), target)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, target)
    if target == pa.string() and values.type in (pa.binary(), pa.large_binary()):
        is_text = pc.match_substring_regex(values, _UTF_8)
        if pc.any(pc.invert(is_text)).as_py():
            return cast_each(pc.if_else(is_text, values, pa.scalar(None, values.type)), target, options)
    middle = len(values) // 2
    halves = [cast_each(values[:middle], target, options), cast_each(values[middle:], target, options)]
    return pa.concat_arrays(halves)
