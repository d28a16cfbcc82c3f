"""Casts that lose single values, never a column."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


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
    """Cast with null if a value can't be cast; halves the input until the bad values stand alone."""
    options = options or pc.CastOptions.safe(target)
    try:
        return pc.cast(values, options=options)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(values), target)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, target)
    middle = len(values) // 2
    halves = [cast_each(values[:middle], target, options), cast_each(values[middle:], target, options)]
    return pa.concat_arrays(halves)
