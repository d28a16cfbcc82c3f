"""count_distinct, approx_count_distinct, percentile and histogram: mergeable sketches whose state does not depend on order.

approx_count_distinct(x, rse) is HyperLogLog (Flajolet et al. 2007) with Ertl's estimator (2017), which needs no tables.
"""

import math
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, state_type, to_state
from sessionlake.columnar.arrays import Groups, Ints, bounds_of, exploded, hash64, offsets_of, packed, within_group

LEAST_BITS, MOST_BITS = 4, 18
ERROR = 1.04
"""The relative standard error of 2^p registers is this, divided by the root of the number of registers."""
_RANK_BITS = 8
_SPARSE = np.dtype("<u4")
_HALF = np.uint64(32)
_WORD = 64
Doubles = npt.NDArray[np.float64]


def bits_for(error: float) -> int:
    """Return the least p whose 2^p registers have at most this relative standard error.

    >>> bits_for(0.02)
    12
    """
    return max(LEAST_BITS, math.ceil(2 * math.log2(ERROR / error)))


class HyperLogLog(Aggregate):
    """Count distinct values that are not null with a relative standard error of at most `error`.

    Of each of 2^p registers the state has the greatest rank: as sorted pairs of register and rank, four bytes each, while
    they are shorter than one byte for each register.
    """

    state = (BYTES,)
    value_type = LONG

    def __init__(self, name: str, column: str, type_: pa.DataType, error: float) -> None:
        state_type(type_, name)
        self.name, self.inputs, self.bits = name, (column,), bits_for(error)
        self.registers = 1 << self.bits

    def lift(self, events: Events) -> States:
        """Return the register and rank of each event's hash."""
        values = to_state(events.columns[self.inputs[0]])
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        hashes = hash64(values)[valid]
        register = hashes >> np.uint64(_WORD - self.bits)
        rank = _WORD + 1 - _bit_length(hashes << np.uint64(self.bits))
        rank = np.minimum(rank, _WORD - self.bits + 1)
        pairs = (register.astype(np.int64) << _RANK_BITS) | rank
        return [packed(pairs.astype(_SPARSE), valid.astype(np.int64))]

    def merge(self, states: States, groups: Groups) -> States:
        """Keep the greatest rank of each register."""
        return merge_shared(states, groups, self._merge_registers)

    def _merge_registers(self, states: States, groups: Groups) -> States:
        rows, pairs = self._pairs(states[0])
        # From high to low bits a number has group, register and rank: a register's last number has its rank.
        shift = self.bits + _RANK_BITS
        codes = np.sort((groups.ids[rows] << shift) | pairs)
        last = np.ones(len(codes), bool)
        last[:-1] = (codes[1:] >> _RANK_BITS) != (codes[:-1] >> _RANK_BITS)
        codes = codes[last]
        return [self._stored(codes >> shift, codes & ((1 << shift) - 1), len(groups.starts))]

    def _pairs(self, state: pa.Array) -> tuple[Ints, Ints]:
        """Return register and rank of all states, joined to a number each, with their rows."""
        dense = (np.diff(offsets_of(state)[0]) == self.registers).nonzero()[0]
        is_dense = np.zeros(len(state), bool)
        is_dense[dense] = True
        sparse, counts = exploded(pc.if_else(pa.array(is_dense), b"", state).cast(BYTES), _SPARSE)
        ranks, _ = exploded(state.take(pa.array(dense)), np.uint8)
        cells = np.flatnonzero(ranks)
        of_dense = ((cells & (self.registers - 1)) << _RANK_BITS) | ranks[cells]
        rows = np.concatenate([np.repeat(np.arange(len(state)), counts), dense[cells >> self.bits]])
        return rows, np.concatenate([sparse.astype(np.int64), of_dense])

    def _stored(self, owners: Ints, pairs: Ints, rows: int) -> pa.Array:
        """Return states of pairs, which are sorted by owner."""
        counts = np.bincount(owners, minlength=rows)
        is_dense = counts * _SPARSE.itemsize >= self.registers
        of_dense = is_dense[owners]
        sparse = packed(pairs[~of_dense].astype(_SPARSE), np.where(is_dense, 0, counts))
        if not is_dense.any():
            return sparse
        # Each dense state's number among dense states: its cells lie at this place.
        place = (np.cumsum(is_dense) - 1)[owners[of_dense]]
        cells = np.zeros(int(is_dense.sum()) << self.bits, np.uint8)
        cells[(place << self.bits) | (pairs[of_dense] >> _RANK_BITS)] = pairs[of_dense] & ((1 << _RANK_BITS) - 1)
        dense = packed(cells, np.where(is_dense, self.registers, 0))
        return pc.if_else(pa.array(is_dense), dense, sparse)

    def value(self, states: States) -> pa.Array:
        """Return the estimate."""
        rows, pairs = self._pairs(states[0])
        height = _WORD - self.bits + 2
        rank_counts = np.bincount(rows * height + (pairs & ((1 << _RANK_BITS) - 1)), minlength=len(states[0]) * height)
        ranks = rank_counts.reshape(-1, height).astype(np.float64)
        ranks[:, 0] = self.registers - ranks.sum(axis=1)
        return pa.array(np.rint(_estimate(ranks, self.registers)).astype(np.int64))


def _bit_length(values: npt.NDArray[np.uint64]) -> Ints:
    """Return how many bits each number has."""
    high, low = values >> _HALF, values & np.uint64(0xFFFFFFFF)
    # A double holds 32 bits exactly, and frexp's exponent is their number.
    some = np.frexp(np.where(high > 0, high, low).astype(np.float64))[1].astype(np.int64)
    return np.where(high > 0, some + 32, some)


def _estimate(ranks: Doubles, registers: int) -> Doubles:
    """Return Ertl's improved raw estimate of each row of counts by rank (arXiv 1702.01284, algorithm 6)."""
    highest = ranks.shape[1] - 1
    z = registers * _tau(1 - ranks[:, highest] / registers)
    for rank in range(highest - 1, 0, -1):
        z = 0.5 * (z + ranks[:, rank])
    with np.errstate(divide="ignore"):
        return registers * registers / (2 * math.log(2)) / (z + registers * _sigma(ranks[:, 0] / registers))


def _sigma(x: Doubles) -> Doubles:
    empty = x == 1
    x = np.where(empty, 0.0, x)
    weight, total, before = 1.0, x, x + 1
    while (total != before).any():
        x, before = x * x, total
        total = total + x * weight
        weight *= 2
    return np.where(empty, np.inf, total)


def _tau(x: Doubles) -> Doubles:
    edge = (x == 0) | (x == 1)
    weight, total, before = 1.0, 1 - x, x + 1
    while (total != before).any():
        x, before = np.sqrt(x), total
        weight *= 0.5
        total = total - (1 - x) ** 2 * weight
    return np.where(edge, 0.0, total / 3)


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
            # A state's hashes ascend, so its largest is the last.
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
        # Equal buckets of a group are adjacent.
        merged["count"] = np.add.reduceat(buckets["count"], starts)
        return [packed(merged, np.bincount(owners[starts], minlength=len(groups.starts)))]

    def value(self, states: States) -> pa.Array:
        """Return the value of the bucket at the rank."""
        buckets, sizes = exploded(states[0], BUCKETS)
        result = np.zeros(len(sizes))
        some = np.flatnonzero(sizes)
        if len(some):
            # Buckets lie state by state, ascending. A rank in a state, plus all counts before the state, is a place in the running count.
            running = np.cumsum(buckets["count"])
            starts = np.cumsum(sizes)[some] - sizes[some]
            before = np.where(starts > 0, running[starts - 1], 0)
            total = np.add.reduceat(buckets["count"], starts)  # states without buckets lie in none of the slices
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
        return cast("npt.NDArray[np.float64]", np.sign(codes) * magnitude)


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
        return pa.ListArray.from_arrays(pa.array(bounds_of(sizes), pa.int32()), items)
