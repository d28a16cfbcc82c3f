"""A sum of whole numbers has one value, whatever the order of batches (docs/rules.md, rule 466)."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.aggregates.beyond import BEYOND, counted, notes_of
from sessionlake.aggregates.layouts import Added
from sessionlake.aggregates.partials import written_values
from sessionlake.columnar.arrays import Groups
from sessionlake.testing import Harness
from sessionlake.warehouse.schemas import OUTCOMES

CONFIG = {
    "source": {"kind": "files", "path": "x", "format": "json"},
    "event": {"key": "k", "time": "t", "time_unit": "us"},
    "session": {"gap": "30 minutes", "grace": "1 day"},
    "aggregates": {"s": "sum(v)", "largest": "max(v)"},
}
BIG = 2**63 - 1


def totals(*values: int) -> list[int | None]:
    """Return the sum after each batch of one value."""
    with Harness(CONFIG) as harness:
        return [harness.process([{"k": "a", "t": 0, "v": value}]).changes[0]["s"] for value in values]


def test_a_sum_that_leaves_64_bits_and_comes_back_does_not_depend_on_the_order() -> None:
    assert totals(BIG, 10, -20) == [BIG, None, BIG - 10]
    for order in itertools.permutations((BIG, 10, -20)):
        assert totals(*order)[-1] == BIG - 10


def test_a_sum_of_a_batch_beyond_64_bits_is_null_until_it_comes_back() -> None:
    assert totals(-BIG, -BIG, -BIG, BIG, BIG, BIG) == [-BIG, None, None, None, -BIG, 0]


WAYS: dict[str, dict[str, Any]] = {
    "session": {"session": {"gap": "30 minutes", "grace": "1 day"}},
    "session by policy": {"session": {"gap": "30 minutes", "grace": "1 day"}, "emit": {"early": "batch"}},
    "window": {
        "window": {"kind": "tumbling", "size": "1 hour", "grace": "1 day", "retention": "2 days"},
        "emit": {"early": "batch"},
    },
    "count": {
        "window": {"kind": "tumbling", "by": "count", "size": 9, "retention": "1 day", "retention_count": 100},
        "emit": {"early": "batch"},
    },
    "group": {"group": {}},
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_whose_sum_is_beyond_64_bits_are_counted_by_aggregate(way: str) -> None:
    config = {**CONFIG, **WAYS[way], "aggregates": {"s": "sum(v)", "t": "sum(w)", "mean": "avg(v)"}}
    config |= {} if "session" in WAYS[way] else {"session": None}
    config = {name: section for name, section in config.items() if section is not None}
    batches = [[("a", BIG), ("b", BIG)], [("a", 10), ("b", 10), ("c", 1)], [("a", -20)], [("b", None)]]
    found = []
    with Harness(config) as harness:
        for batch in batches:
            output = harness.process([{"k": key, "t": 0, "v": value, "w": 1} for key, value in batch])
            found.append({name: n for name, n in output.counts.items() if name.startswith(BEYOND)})
            null = sum(row["s"] is None for row in output.changes if row["op"] == "upsert")
            assert found[-1].get("beyond:s", 0) == null
            assert output.counts["input"] == sum(output.counts.get(name, 0) for name in OUTCOMES) == len(batch)
    assert found == [{}, {"beyond:s": 2}, {}, {"beyond:s": 1}]


def test_rows_that_are_taken_back_are_counted_too() -> None:
    (total,) = build_aggregates({"s": "sum(v)"}, {"v": pa.int64()}, subtracts=True)
    (mean,) = build_aggregates({"s": "avg(v)"}, {"v": pa.int64()}, subtracts=True)
    events = Events(pa.array(["a"] * 3), np.zeros(3, np.int64), {"v": pa.array([BIG, BIG, None])})
    for sign in (1, -1):
        states = total.lift(events)
        states = states if sign == 1 else total.inverted(states)
        merged = total.merge(states, Groups(np.array([0, 2]), 3))
        assert total.beyond(merged) == (1 if sign == 1 else 0)
        assert total.beyond(states) == mean.beyond(merged) == 0


def test_a_sum_of_an_added_aggregate_counts_only_what_is_known() -> None:
    (inner,) = build_aggregates({"s": "sum(v)"}, {"v": pa.int64()})
    added = Added(inner, 3)
    batch = np.array([3, 3, 1, 3])
    events = Events(pa.array(["a"] * 4), np.zeros(4, np.int64), {"v": pa.array([BIG, BIG, BIG, BIG])}, batch=batch)
    merged = added.merge(added.lift(events), Groups(np.array([0, 2]), 4))
    assert added.value(merged).to_pylist() == [None, None]
    with counted() as found:
        written_values([added], merged)
    assert found == {"beyond:s": 1}


def test_the_warning_of_a_batch_names_the_aggregate() -> None:
    told = notes_of({"beyond:s": 1, "input": 3, "found:s": 2})
    assert told == ["aggregates.s: 1 value is null, because the sum is beyond 64 bits; sum a decimal or a double"]
