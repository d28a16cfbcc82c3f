"""percentile and histogram that can take rows back: buckets of DDSketch whose counts may be negative for a time."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import States
from sessionlake.aggregates.sketches import BUCKETS, Histogram, Percentile
from sessionlake.columnar.arrays import Bools, Groups, below_zero, exploded, packed


class SignedPercentile(Percentile):
    """percentile(x, p), as `Percentile` has it. A bucket whose count is 0 leaves the state."""

    def _merge_buckets(self, states: States, groups: Groups) -> States:
        (merged,) = super()._merge_buckets(states, groups)
        return [_some(merged, exploded(merged, BUCKETS)[0]["count"] != 0)]

    def inverted(self, states: States) -> States:
        """Negate the counts."""
        buckets, sizes = exploded(states[0], BUCKETS)
        inverse = buckets.copy()
        inverse["count"] = -buckets["count"]
        return [packed(inverse, sizes)]

    def overdrawn(self, states: States) -> Bools:
        """Say which have a bucket with less than no values."""
        buckets, sizes = exploded(states[0], BUCKETS)
        return below_zero(buckets["count"], sizes)

    def value(self, states: States) -> pa.Array:
        """Return the value of the bucket at the rank."""
        return super().value([_some(states[0], exploded(states[0], BUCKETS)[0]["count"] > 0)])


class SignedHistogram(SignedPercentile, Histogram):
    """histogram(x), as `Histogram` has it."""

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        Histogram.__init__(self, name, column, type_)


def _some(column: pa.Array, kept: Bools) -> pa.Array:
    """Return the buckets that are kept."""
    if kept.all():
        return column
    buckets, sizes = exploded(column, BUCKETS)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return packed(buckets[kept], np.bincount(owners[kept], minlength=len(sizes)))
