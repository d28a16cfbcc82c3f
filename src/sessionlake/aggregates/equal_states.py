"""Comparison of packed states: equal bytes, or else equal counts and values within a tolerance."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import LONG
from sessionlake.columnar.arrays import Bools

RELATIVE, ABSOLUTE = 1e-9, 1e-9
"""Sums of floats depend on the order of their terms, which a backfill does not repeat."""


def states_equal(aggregates: Sequence[Aggregate], left: pa.Array, right: pa.Array) -> Bools:
    """Say which pairs of packed states are equal."""
    equal = pc.equal(left, right).to_numpy(zero_copy_only=False).astype(bool)
    rest = np.flatnonzero(~equal)
    if len(rest):
        codec, index = StateCodec(aggregates), pa.array(rest)
        equal[rest] = _values_equal(aggregates, codec.decode(left.take(index)), codec.decode(right.take(index)))
    return equal


def _values_equal(aggregates: Sequence[Aggregate], left: States, right: States) -> Bools:
    equal = np.ones(len(left[0]) if left else 0, bool)
    at = 0
    for aggregate in aggregates:
        width = len(aggregate.state)
        a, b = left[at : at + width], right[at : at + width]
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            if x.type == LONG or (n in aggregate.rare and x.null_count + y.null_count < 2 * len(x)):
                equal &= values_close(x, y)
        equal &= values_close(aggregate.value(a), aggregate.value(b))
        at += width
    return equal


def values_close(left: pa.Array, right: pa.Array) -> Bools:
    """Say which pairs of values are the same; floats may differ by the tolerance. Two nulls are the same.

    >>> values_close(pa.array([0.1 + 0.2, 1.0, None]), pa.array([0.3, 2.0, None])).tolist()
    [True, False, True]
    """
    if not (pa.types.is_floating(left.type) or pa.types.is_integer(left.type)):
        # Only pairs whose bytes differ come here; lists have no comparison in Arrow.
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), bool, len(left))
    nulls = left.is_null().to_numpy(zero_copy_only=False), right.is_null().to_numpy(zero_copy_only=False)
    a, b = (pc.fill_null(x, 0).to_numpy(zero_copy_only=False) for x in (left, right))
    exact = pa.types.is_integer(left.type)
    same = a == b if exact else np.isclose(a, b, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    return (nulls[0] == nulls[1]) & (same | nulls[0])
