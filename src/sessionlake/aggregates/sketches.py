"""count_distinct, approx_count_distinct and percentile: mergeable sketches whose state does not depend on order."""

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, state_type, to_state
from sessionlake.columnar.arrays import Groups, exploded, hash64, packed, within_group

EXACT_DISTINCT = 4096
APPROX_DISTINCT = 1024
RELATIVE_ACCURACY = 0.01
GAMMA = (1 + RELATIVE_ACCURACY) / (1 - RELATIVE_ACCURACY)
"""DDSketch's base: bucket i holds the values in (gamma ** (i - 1), gamma ** i], whose middle is within the accuracy of all of them."""
_ZERO_BUCKET = 0
_FIRST_BUCKET = 1 << 17
_INFINITE = 1 << 30
_NAN_BUCKET = _INFINITE + 1
_LARGEST_LOG = np.log(np.finfo(np.float64).max)
BUCKETS = np.dtype([("code", "<i4"), ("count", "<i8")])


class CountDistinct(Aggregate):
    """Count distinct values that are not null: exactly up to `bound`, beyond it within about 1 / sqrt(bound).

    The state is the `bound` + 1 smallest 64-bit hashes (a k-minimum-values sketch, Bar-Yossef et al. 2002), sorted.
    """

    state = (BYTES,)
    value_type = LONG

    def __init__(self, name: str, column: str, type_: pa.DataType, bound: int) -> None:
        state_type(type_, name)
        self.name, self.inputs, self.bound = name, (column,), bound

    def lift(self, events: Events) -> States:
        """Return each event's hash."""
        values = to_state(events.columns[self.inputs[0]])
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        return [packed(hash64(values)[valid], valid.astype(np.int64))]

    def merge(self, states: States, groups: Groups) -> States:
        """Keep the smallest hashes of the union."""
        return merge_shared(states, groups, self._merge_hashes)

    def _merge_hashes(self, states: States, groups: Groups) -> States:
        hashes, counts = exploded(states[0], np.uint64)
        owners = np.repeat(groups.ids, counts)
        order = np.lexsort((hashes, owners))
        hashes, owners = hashes[order], owners[order]
        new = np.ones(len(hashes), bool)
        new[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
        hashes, owners = hashes[new], owners[new]
        kept = within_group(np.bincount(owners, minlength=len(groups.starts))) <= self.bound
        return [packed(hashes[kept], np.bincount(owners[kept], minlength=len(groups.starts)))]

    def value(self, states: States) -> pa.Array:
        """Return the count, or beyond the bound its estimate."""
        hashes, counts = exploded(states[0], np.uint64)
        distinct = counts.copy()
        full = np.flatnonzero(counts > self.bound)
        if len(full):
            largest = hashes[np.cumsum(counts)[full] - 1].astype(np.float64)
            distinct[full] = np.maximum(self.bound + 1, np.rint(self.bound / (largest / 2.0**64))).astype(np.int64)
        return pa.array(distinct)


class Percentile(Aggregate):
    """percentile(x, p), 0 <= p <= 1: within 1 % of the value at rank p * (n - 1), by DDSketch (Masson et al. 2019).

    Infinities count, and NaN as the greatest number, as in SQL. The state is the sketch's buckets: a code that orders
    them by value, and a count.
    """

    state = (BYTES,)
    value_type = DOUBLE

    def __init__(
        self, name: str, column: str, type_: pa.DataType, fraction: float, function: str = "percentile"
    ) -> None:
        self.name, self.inputs, self.fraction = name, (column,), fraction
        self._scale = 10.0**-type_.scale if pa.types.is_decimal(type_) else 1.0
        number_type(name, function, column, type_)

    def lift(self, events: Events) -> States:
        """Return each event's bucket."""
        values = to_state(events.columns[self.inputs[0]]).cast(DOUBLE, safe=False)
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)[valid] * self._scale
        buckets = np.ones(len(numbers), BUCKETS)
        buckets["code"] = self._codes(numbers)
        return [packed(buckets, valid.astype(np.int64))]

    def _codes(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        codes = np.full(len(values), _ZERO_BUCKET, np.int32)
        codes[values == np.inf], codes[values == -np.inf], codes[np.isnan(values)] = _INFINITE, -_INFINITE, _NAN_BUCKET
        some = np.isfinite(values) & (values != 0)
        steps = np.ceil(np.log(np.abs(values[some])) / np.log(GAMMA)).astype(np.int32)
        codes[some] = np.sign(values[some]).astype(np.int32) * (steps + _FIRST_BUCKET)
        return codes

    def merge(self, states: States, groups: Groups) -> States:
        """Add the counts of equal buckets."""
        return merge_shared(states, groups, self._merge_buckets)

    def _merge_buckets(self, states: States, groups: Groups) -> States:
        buckets, counts = exploded(states[0], BUCKETS)
        if not len(buckets):
            return [packed(buckets, np.zeros(len(groups.starts), np.int64))]
        owners = np.repeat(groups.ids, counts)
        order = np.lexsort((buckets["code"], owners))
        buckets, owners = buckets[order], owners[order]
        new = np.ones(len(buckets), bool)
        new[1:] = (buckets["code"][1:] != buckets["code"][:-1]) | (owners[1:] != owners[:-1])
        starts = np.flatnonzero(new)
        merged = buckets[starts]
        merged["count"] = np.add.reduceat(buckets["count"], starts)
        return [packed(merged, np.bincount(owners[starts], minlength=len(groups.starts)))]

    def value(self, states: States) -> pa.Array:
        """Return the value of the bucket at the rank."""
        buckets, sizes = exploded(states[0], BUCKETS)
        result = np.zeros(len(sizes))
        some = np.flatnonzero(sizes)
        if len(some):
            running = np.cumsum(buckets["count"])
            starts = np.cumsum(sizes)[some] - sizes[some]
            before = np.where(starts > 0, running[starts - 1], 0)
            total = np.add.reduceat(buckets["count"], starts)
            rank = before + np.floor(self.fraction * (total - 1)).astype(np.int64)
            result[some] = self._values(buckets["code"][np.searchsorted(running, rank, side="right")])
        return pa.array(result, mask=sizes == 0)

    def _values(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        steps = np.abs(codes.astype(np.float64)) - _FIRST_BUCKET
        # The middle of the topmost bucket is beyond the largest double.
        magnitude = np.exp(np.minimum(steps * np.log(GAMMA) + np.log(2.0 / (1 + GAMMA)), _LARGEST_LOG))
        magnitude[np.abs(codes) == _INFINITE] = np.inf
        magnitude[codes == _ZERO_BUCKET] = 0.0
        magnitude[codes == _NAN_BUCKET] = np.nan
        return cast(npt.NDArray[np.float64], np.sign(codes) * magnitude)


class Histogram(Percentile):
    """histogram(x): the sketch of percentile itself, as a list of values, each within 1 %, and how often they came."""

    value_type = pa.list_(pa.struct([("value", DOUBLE), ("count", LONG)]))

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        super().__init__(name, column, type_, 0.0, "histogram")

    def value(self, states: States) -> pa.Array:
        """Return the buckets by value; an empty list of no numbers."""
        buckets, sizes = exploded(states[0], BUCKETS)
        columns = [pa.array(self._values(buckets["code"])), pa.array(buckets["count"].astype(np.int64))]
        items = pa.StructArray.from_arrays(columns, fields=list(self.value_type.value_type))
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()), items)
