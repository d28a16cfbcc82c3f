"""The seed's Case 2, Orders joined with Shipments by id, by time and by count, row for row (SAMZA-552)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.stream.run import run
from sessionlake.testing.joins import JoinHarness, JoinOutput
from tests.operators.joins.join_support import join_config, read, write
from tests.oracle.case2 import BY, CLOCKS, EACH_MESSAGE, EACH_MINUTE, ORDERS, SHIPMENTS, SIZES, Pair, at, shown


def harness(by: str, emit: str, shards: int) -> JoinHarness:
    return JoinHarness(
        on=["id"],
        left={"name": "orders", "size": SIZES[by], "columns": ["value"]},
        right={"name": "shipments", "size": None, "columns": ["cost"]},
        early=emit,
        late=emit,
        shards=shards,
        **BY[by],
    )


def played(join: JoinHarness, *, lose_stores: bool) -> Iterator[tuple[str, JoinOutput]]:
    for clock in CLOCKS:
        left: list[dict[str, Any]] = [row for when, row in ORDERS if when == clock]
        right: list[dict[str, Any]] = [row for when, row in SHIPMENTS if when == clock]
        yield clock, join.process(left, right, at(clock))
        if lose_stores:
            join.lose_stores()


@pytest.mark.parametrize("disks", ["kept", "lost"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("emit", "expected"), [("1 minute", EACH_MINUTE), ("batch", EACH_MESSAGE)])
@pytest.mark.parametrize("by", ["time", "count"])
def test_every_row_of_case_2(by: str, emit: str, expected: list[Pair], shards: int, disks: str) -> None:
    with harness(by, emit, shards) as join:
        found = []
        for clock, output in played(join, lose_stores=disks == "lost"):
            assert output.late == output.dead == []
            found += shown(clock, output.pairs)
            assert all(row["op"] == "upsert" and row["emitted_at"] == at(clock) for row in output.pairs)
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("by", ["time", "count"])
def test_case_2_through_spark_and_delta(spark: SparkSession, tmp_path: Path, by: str) -> None:
    """A run stands for each minute: its end is a tick, which a period of a thousand days has none of its own beside."""
    settings = {**BY[by], "by": by, "grace": None, "retention": BY[by].get("retention")}
    sides = {
        "left": {"name": "orders", "size": SIZES[by], "columns": ["value"]},
        "right": {"name": "shipments", "size": "unbounded", "columns": ["cost"]},
    }
    period = {"early": "1000 days", "late": "1000 days"}
    config = join_config(tmp_path, **settings, **sides, emit=period, idle="1000 days")
    found, seen, number = [], 0, 0
    for low, high in (("8:00:00", "9:01:00"), ("9:01:00", "9:02:00"), ("9:02:00", "9:03:00")):
        for clock in CLOCKS:
            if at(low) < at(clock) <= at(high):
                for side, rows in (("left", ORDERS), ("right", SHIPMENTS)):
                    write(tmp_path, side, number, [row for when, row in rows if when == clock])
                    os.utime(tmp_path / side / f"{number}.json", (number, number))
                number += 1
        run(spark, config, once=True)
        rows = read(config, "join_changelog").to_pylist()
        found += shown(high, [row for row in rows if row["batch_id"] >= seen])
        seen = 1 + max((row["batch_id"] for row in rows), default=-1)
    assert found == EACH_MINUTE
