"""States of overlapping ranges equal those that are merged range by range, whichever way they are found."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.partials import lift, merge_ranges, merge_states, values_of
from sessionlake.columnar.arrays import Groups
from sessionlake.errors import StoreError
from tests.support import examples

SPECS = {
    "n": "count()",
    "total": "sum(v)",
    "least": "min(v)",
    "latest": "last(v)",
    "some": "collect(v, 3)",
    "kinds": "count_distinct(v)",
    "ones": "bit_xor(v)",
    "dearest": "max_by(v, v)",
    "once": "collect_set(v, 3)",
    "about": "approx_count_distinct(v, 0.1)",
}
FULL = {
    "middle": "median(v)",
    "usual": "mode(v)",
    "upper": "quantile(v, 0.9)",
    "mine": "tests.aggregates.test_ranges:Listed",
}
USERS = {"mine": "tests.aggregates.test_ranges:Joined"}


class Joined:
    """The texts of one key's values; it raises where it is asked to merge those of two."""

    columns = ("v",)

    def initializer(self) -> list[Any]:
        return []

    def aggregator(self, key: str, event: dict[str, Any], aggregate: list[Any]) -> list[Any]:
        return [*aggregate, [key, event["v"]]]

    def merger(self, key: str, left: list[Any], right: list[Any]) -> list[Any]:
        merged = sorted([*left, *right])
        if any(of != key for of, _ in merged):
            raise ValueError("two keys")
        return merged


class Listed:
    """The values in order of time, after the key."""

    columns = "v"

    def evaluate(self, key: str, rows: list[dict[str, Any]]) -> list[Any]:
        return [key, *(row["v"] for row in rows)]


@pytest.mark.parametrize("specs", [SPECS, USERS, FULL, {**SPECS, **FULL}])
@given(data=st.data())
@examples(60)
def test_equal_to_one_range_after_the_other(specs: dict[str, str], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    keys = pa.array([f"k{i}" for i, size in enumerate(sizes) for _ in range(size)])
    rows, ends = sum(sizes), np.cumsum(sizes)
    values = data.draw(st.lists(st.integers(-9, 9), min_size=rows, max_size=rows))
    aggregates = build_aggregates(specs, {"v": pa.int64(), "key": pa.string()})
    lifted = lift(aggregates, Events(keys, np.arange(rows), {"v": pa.array(values, pa.int64())}))
    wide = data.draw(st.booleans())
    low, high = [], []
    for size, end in zip(sizes, ends.tolist(), strict=True):
        for at in range(end - size, end):
            low.append(at)
            high.append(end if wide else min(end, at + 1 + at % 3))
    found = merge_ranges(aggregates, lifted.states, np.array(low), np.array(high), keys)
    shown = list(zip(*(column.to_pylist() for column in values_of(aggregates, found)), strict=True))
    for at, (a, b) in enumerate(zip(low, high, strict=True)):
        one = merge_states(
            aggregates,
            [column.slice(a, b - a) for column in lifted.states],
            Groups(np.zeros(1, np.int64), b - a, lambda a=a: keys.slice(a, 1)),
        )
        assert shown[at] == tuple(column.to_pylist()[0] for column in values_of(aggregates, one))


@pytest.mark.parametrize("text", ["median(v)", "quantile(v, 0.9)", "tests.aggregates.test_ranges:Listed"])
def test_full_states_are_merged_once_a_range(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary lifting would copy every value once more for each level."""
    rows = 64
    keys = pa.array(["k"] * rows)
    aggregates = build_aggregates({"all": text}, {"v": pa.int64(), "key": pa.string()})
    lifted = lift(aggregates, Events(keys, np.arange(rows), {"v": pa.array(range(rows), pa.int64())}))
    merged: list[int] = []
    merge = type(aggregates[0]).merge

    def counted(self: Aggregate, states: States, groups: Groups) -> States:
        merged.append(groups.rows)
        return merge(self, states, groups)

    monkeypatch.setattr(type(aggregates[0]), "merge", counted)
    merge_ranges(aggregates, lifted.states, np.zeros(rows, np.int64), np.full(rows, rows), keys)
    assert merged == [rows * rows]


def test_gathering_more_than_two_gibibytes_is_one_line() -> None:
    aggregates = build_aggregates({"middle": "median(v)"}, {"v": pa.int64()})
    wide = np.zeros(1 << 23, np.int64).tobytes()  # 64 MiB
    states: States = [pa.array([wide, wide], pa.binary())]
    low, high = np.zeros(17, np.int64), np.full(17, 2)
    with pytest.raises(StoreError, match=rf"pipeline\.shards: {34 << 26} bytes in one Arrow array, which holds 2 GiB"):
        merge_ranges(aggregates, states, low, high, pa.array(["k", "k"]))
