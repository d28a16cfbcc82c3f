"""Series, in each of which a pipeline counts messages: a key, with a partition of the source if partitions are numbered."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, binary_array, offsets_of

_SUFFIX = 8


def series_of(keys: pa.Array, partition: Ints) -> pa.Array:
    """Return series as bytes: the key's, then the number of the partition in 8 bytes, 0 if a key's messages are numbered."""
    suffix = binary_array(partition.astype(">i8"), np.arange(len(partition) + 1) * _SUFFIX)
    return pc.binary_join_element_wise(keys.cast(pa.binary()), suffix, b"")


def keys_of(series: pa.Array) -> pa.Array:
    """Return the keys of series."""
    return pc.binary_slice(series, 0, -_SUFFIX).cast(pa.string())


def partitions_of(series: pa.Array) -> Ints:
    """Return the partitions of series."""
    return offsets_of(pc.binary_slice(series, -_SUFFIX))[1].view(">i8").astype(np.int64)
