"""Equal fields and columns of pairs: how many, of which types, and what a batch that is computed twice makes of them."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.errors import ConfigError
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.spec import Side
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.messages import MessageStore
from sessionlake.stream.ingest import EventSpec
from sessionlake.testing.joins import JoinHarness

SIZES: dict[str, Any] = {"left": {"name": "l", "size": 10}, "right": {"name": "r", "size": 10}}


def row(time: int = 0, **fields: Any) -> dict[str, Any]:
    return {"time_us": time, **fields}


def test_without_equal_fields_all_in_range_are_partners() -> None:
    with JoinHarness(on=[], **SIZES, retention="1 minute", shards=3) as run:
        output = run.process([row(0), row(5)], [row(10), row(15)])
    found = [(p["join_key"], p["left_position"], p["right_position"]) for p in output.pairs]
    assert sorted(found) == [("", 1, 1), ("", 2, 1), ("", 2, 2)]


def test_several_equal_fields_may_be_called_otherwise_and_texts_do_not_run_together() -> None:
    with JoinHarness(on=["a = c", "b"], **SIZES, retention="1 minute") as run:
        left = [row(a='x","', b="y"), row(a="x", b='","y'), row(a="x", b=None)]
        output = run.process(left, [row(c="x", b='","y'), row(c='x","', b="z")])
    assert [(p["join_key"], p["left_position"], p["right_position"]) for p in output.pairs] == [
        ('["x","\\",\\"y"]', 2, 1)
    ]
    assert [(r["side"], r["reason"]) for r in output.dead] == [("left", "null key")]


def test_a_message_without_its_equal_field_is_a_dead_letter_of_its_side() -> None:
    with JoinHarness(on=["k"], **SIZES, retention="1 minute", schema={"k": "string"}) as run:
        output = run.process([row(k=None), row(k="")], [row(k="a")])
        assert [(r["side"], r["reason"]) for r in output.dead] == [("left", "null key"), ("left", "empty key")]
        assert (output.counts["dead:left"], output.counts["dead"], output.counts["accepted:right"]) == (2, 2, 1)
        # What is refused has no position: the next message is the first.
        (pair,) = run.process([row(k="a")], []).pairs
        assert pair["left_position"] == 1


VALUES: dict[str, list[Any]] = {
    "long": [1, None, -(1 << 62)],
    "double": [0.5, None, float("inf")],
    "string": ["", None, "é\0"],
    "boolean": [True, None, False],
    "timestamp": [dt.datetime(2026, 11, 22, tzinfo=dt.UTC), None, dt.datetime(1969, 1, 1, tzinfo=dt.UTC)],
    "date": [dt.date(2026, 11, 22), None, dt.date(1900, 1, 1)],
}


@pytest.mark.parametrize("disks", ["kept", "lost"])
@pytest.mark.parametrize("type_", VALUES)
def test_values_of_any_type_and_nulls_come_back_from_stores_and_tables(type_: str, disks: str) -> None:
    sides = {"left": {**SIZES["left"], "columns": ["v"]}, "right": SIZES["right"]}
    with JoinHarness(on=["k"], **sides, retention="1 minute", schema={"k": "long", "v": type_}) as run:
        run.process([row(k=i, v=value) for i, value in enumerate(VALUES[type_])], [])
        if disks == "lost":
            run.lose_stores()
        pairs = run.process([], [row(k=i) for i in range(3)]).pairs
    expected = VALUES[type_]
    if type_ == "timestamp":
        expected = [None if v is None else int(v.timestamp()) * 1_000_000 for v in expected]
    assert [p["l_v"] for p in sorted(pairs, key=lambda p: p["join_key"])] == expected


def test_a_column_that_stores_can_not_hold_is_refused_in_one_line() -> None:
    types = {"k": pa.string(), "t": pa.int64(), "v": pa.list_(pa.int64())}
    columns = EventColumns("k", "t", "us", None, ("v",), types)
    with JoinHarness(on=["k"], **SIZES, retention="1 minute") as run:
        run.tick(0)
        spec = vars(run)["_operator"].spec
    with pytest.raises(
        ConfigError, match=r"^join\.left\.columns: 'v' is of type list<item: int64>, which can't be kept"
    ):
        type(spec)(Side("l", 10, ("v",), EventSpec(TableDecoder(columns, None))), spec.right, spec.on)


class Twice(Joiner):
    """Computes each shard twice, as a task that Spark runs again does."""

    def apply(self, inputs: Inputs, store: MessageStore, context: BatchContext) -> ShardResult:
        first, second = (super(Twice, self).apply(inputs, store, context) for _ in range(2))
        assert first == second
        return first


@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_a_shard_that_is_computed_twice_gives_the_same_and_leaves_its_store(kind: str) -> None:
    more: dict[str, Any] = {"gap": 5} if kind == "session" else {}
    sides = SIZES if kind == "sliding" else {name: {"name": name} for name in ("left", "right")}
    batches = [
        ([row(t, k=t % 3) for t in range(n, n + 30, 7)], [row(t, k=t % 3) for t in range(n, n + 30, 5)])
        for n in (0, 9, 4)
    ]
    settings = {"on": ["k"], **sides, "kind": kind, **more, "retention": "1 minute", "early": "1 ms"}
    with JoinHarness(**settings) as once, JoinHarness(**settings) as twice:
        assert once.tick(0) == twice.tick(0)
        vars(twice)["_operator"] = Twice(vars(twice)["_operator"].spec)
        for clock, (left, right) in enumerate(batches):
            assert once.process(left, right, clock * 600) == twice.process(left, right, clock * 600)
        assert once.joins() == twice.joins() != []
