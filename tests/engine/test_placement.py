"""Which executor a shard belongs to: spread evenly, moved as little as can be."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkConf
from pyspark.sql import SparkSession

from sessionlake.engine import exchange
from sessionlake.engine.placement import (
    ExecutorLostError,
    Placed,
    anchor_of,
    awaited,
    on_shards,
    place,
    spread,
    watched,
)
from sessionlake.errors import ConfigError

EXECUTORS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True)


def test_first_spread_is_even() -> None:
    assert spread({}, ["a", "b"], 5) == {"a": [0, 1, 2], "b": [3, 4]}


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 5))
def test_the_shards_of_several_pipelines_are_spread_together(shards: list[int], executors: int) -> None:
    names = [f"e{number}" for number in range(executors)]
    before = [sum(shards[:number]) for number in range(len(shards))]
    held = [spread({}, names, own, dealt) for own, dealt in zip(shards, before, strict=True)]
    sizes = [sum(len(one[name]) for one in held) for name in names]
    assert max(sizes) - min(sizes) <= 1
    for one in held:
        alone = [len(own) for own in one.values()]
        assert max(alone) - min(alone) <= 1


def test_only_the_lost_executors_shards_move() -> None:
    assert spread({"a": [0, 1], "b": [2, 3], "c": [4, 5]}, ["a", "c"], 6) == {"a": [0, 1, 2], "c": [4, 5, 3]}


def test_successor_gets_what_the_lost_executor_had() -> None:
    assert spread({"a": [0, 1], "b": [2, 3]}, ["b", "z"], 4) == {"b": [2, 3], "z": [0, 1]}


def test_successor_that_comes_late_gets_it_from_who_stood_in() -> None:
    stood_in = spread({"a": [0, 1], "b": [2, 3]}, ["b"], 4)
    assert stood_in == {"b": [2, 3, 0, 1]}
    assert spread(stood_in, ["b", "z"], 4) == {"b": [2, 3], "z": [0, 1]}


def test_more_executors_than_shards() -> None:
    assert spread({"b": [0]}, ["a", "b", "c"], 2) == {"a": [1], "b": [0], "c": []}


@given(st.integers(1, 40), st.lists(EXECUTORS, min_size=1, max_size=6))
def test_every_shard_has_one_place_and_none_moves_without_need(shards: int, times: list[list[str]]) -> None:
    held: dict[str, list[int]] = {}
    for executors in times:
        before = {shard: executor for executor, own in held.items() for shard in own}
        held = spread(held, executors, shards)
        after = {shard: executor for executor, own in held.items() for shard in own}
        sizes = [len(own) for own in held.values()]
        assert sorted(shard for own in held.values() for shard in own) == list(range(shards))
        assert max(sizes) - min(sizes) <= 1
        stayed = sum(before.get(shard) == executor for shard, executor in after.items())
        had = [sum(place == executor for place in before.values()) for executor in executors]
        least, more = divmod(shards, len(executors))
        room = [least + 1] * more + [least] * (len(executors) - more)
        assert stayed == sum(map(min, sorted(had, reverse=True), room))


@pytest.mark.parametrize(
    ("looks", "seconds", "found"),
    [
        ([("a", "b")], 60, ("a", "b")),
        ([("b",), ("b",), ("b", "c")], 60, ("b", "c")),
        ([("b",), ("b", "c", "d")], 60, ("b", "c", "d")),
        ([("b",)], 0, ("b",)),
    ],
    ids=["none is missing", "until the successor is there", "more than before", "not for ever"],
)
def test_shards_of_a_lost_executor_wait_for_its_successor(
    looks: list[tuple[str, ...]], seconds: float, found: tuple[str, ...]
) -> None:
    """The list of looks is read to its end: nothing is waited for that is there, and nothing is given up before it is."""
    left = iter(looks)
    assert awaited(lambda: next(left), 2, seconds) == found
    assert next(left, None) is None


def slow_count(spark: SparkSession, seconds: float) -> int:
    def sleep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    return spark.range(0, 1, 1, 1).mapInArrow(sleep, "id long").count()


def test_job_is_cancelled_when_an_executor_with_shards_is_gone(spark: SparkSession) -> None:
    """Here no executor is registered, so that the one of the shard is gone."""
    started = time.monotonic()
    with pytest.raises(ExecutorLostError), watched(spark, Placed({"executor_one_4": [0]}, spark.range(1))):
        slow_count(spark, 60)
    assert time.monotonic() - started < 30
    assert not list(spark.sparkContext.getJobTags())


def test_executor_without_shards_is_not_missed(spark: SparkSession) -> None:
    with watched(spark, Placed({"executor_one_4": []}, spark.range(1))):
        assert slow_count(spark, 1.2) == 1


def test_dynamic_allocation_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [*spark.sparkContext.getConf().getAll(), ("spark.dynamicAllocation.enabled", "true")]
    monkeypatch.setattr(spark.sparkContext, "_conf", SparkConf().setAll(settings))
    with pytest.raises(ConfigError, match=r"spark.dynamicAllocation.enabled: 'true'"):
        place(spark, 3)


class Seen:
    """A task that reports the shards that it gets rows of, and how many."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches) if (batches := [*batches]) else None
        if table is not None and table.num_rows:
            yield exchange.report_batch(f"{table['shard'].unique().to_pylist()} {table.num_rows}", b"")


@pytest.mark.parametrize(
    ("held", "seen"),
    [
        ({"executor_one_4": [0, 2], "executor_two_11": [1]}, ["[0] 3", "[1] 3", "[2] 3"]),
        ({"executor_one_4": [], "executor_two_11": [0]}, ["[0] 9"]),
    ],
)
def test_rows_are_shuffled_once_and_shards_prefer_their_executors(
    spark: SparkSession, held: dict[str, list[int]], seen: list[str]
) -> None:
    """What Spark's planner makes of the anchor; where it shuffled it, no shard would have a place."""
    shards = len(seen)
    rows = spark.range(9).selectExpr(f"int(id % {shards}) shard", "string(id) kind", "binary('') payload")
    grouped = on_shards(rows, cast("Any", Seen()), shards, Placed(held, anchor_of(spark, held)))
    assert sorted(row.kind for row in grouped.collect()) == seen
    execution = grouped._jdf.queryExecution()
    assert execution.executedPlan().toString().count("Exchange") == 1
    context, rdd = spark.sparkContext._jsc.sc(), execution.toRdd()
    places = [context.getPreferredLocs(rdd, shard).mkString() for shard in range(shards)]
    assert places == [next(executor for executor, own in held.items() if shard in own) for shard in range(shards)]
