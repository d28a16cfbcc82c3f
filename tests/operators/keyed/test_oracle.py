"""Keyed tables against a table that keeps all updates (`tests/oracle/tables.py`), and against SQL, on random streams."""

import random
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.testing.tables import TableHarness, TableOutput
from tests.oracle.tables import Table

Row = dict[str, Any]
RETENTION_S = 100
SECOND = 1_000_000
COLUMNS = {"v": "long", "s": "string"}
KEYS = st.sampled_from("abcde")
VALUES = st.fixed_dictionaries(
    {"v": st.none() | st.integers(-3, 3), "s": st.none() | st.sampled_from(["", "x", "xy", "é"])}
)


def event(times: st.SearchStrategy[int]) -> st.SearchStrategy[Row]:
    """Return events of few keys, times and ids, so that many are equal in some of them."""
    return st.builds(
        lambda key, time, deleted, eid, values: {
            "key": key,
            "time_us": time * SECOND,
            "deleted": deleted,
            "eid": eid,
            **values,
        },
        KEYS,
        times,
        st.integers(0, 3).map(lambda n: n == 0),
        st.sampled_from([None, "1", "10", "2"]),
        VALUES,
    )


BATCHES = st.lists(st.lists(event(st.integers(0, 400)), max_size=8), min_size=1, max_size=8)


def plain(output: TableOutput) -> list[Row]:
    names = {"table_key": "key", "event_time": "time"}
    found = [
        {
            names.get(n, n): v
            for n, v in row.items()
            if n not in ("revision", "event_id", "event_offset", "event_partition", "written_at", "inserted_at")
        }
        for row in output.changes
    ]
    return sorted(found, key=lambda row: row["key"])


@given(
    batches=BATCHES,
    tombstones=st.lists(st.tuples(st.integers(0, 7), KEYS, st.integers(0, 7)), max_size=6),
    shards=st.integers(1, 3),
    tasks=st.integers(1, 3),
    lost=st.sets(st.integers(0, 7)),
)
def test_every_batch_does_what_a_table_that_forgets_nothing_does(
    batches: list[list[Row]], tombstones: list[tuple[int, str, int]], shards: int, tasks: int, lost: set[int]
) -> None:
    model = Table(RETENTION_S * SECOND)
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} seconds", event_id="eid", shards=shards) as harness:
        for number, rows in enumerate(batches):
            if number in lost:
                harness.lose_stores()
            named = [
                # The revision that the row has, or another one.
                {
                    "kind": "tombstone",
                    "key": key,
                    "revision": model.revisions.get(key, 0) - (guess == 0),
                    "correction_id": str(i),
                }
                for i, (batch, key, guess) in enumerate(tombstones)
                if batch == number
            ]
            output = harness.process([*rows, *named], tasks=tasks)
            changes, dead, counts = model.batch([*rows, *named])
            assert plain(output) == changes
            assert sorted(map(repr, output.dead)) == sorted(repr({**row, "reason": "beyond retention"}) for row in dead)
            assert {name: output.counts.get(name, 0) for name in counts} == counts
            assert counts["accepted"] == counts["changed"] + counts["superseded"] + counts["unchanged"]
            assert counts["accepted"] + counts["dead"] == len(rows)
            assert harness.rows() == model.rows()
        # No more is remembered than must be.
        keys = {key for key, time in harness.markers().items() if time >= (model.horizon or -(1 << 62))}
        assert keys == {
            key
            for key in model.seen
            if model.holds(key)[0][3] and model.holds(key)[0][0] >= (model.horizon or -(1 << 62))
        }


@given(
    events=st.lists(event(st.integers(0, RETENTION_S)), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    seed=st.integers(0, 1 << 30),
    shards=st.integers(1, 3),
    lost=st.booleans(),
)
def test_within_retention_any_order_and_batches_give_the_latest_of_each_key_as_sql_does(
    events: list[Row], cuts: list[int], seed: int, shards: int, *, lost: bool
) -> None:
    # With ids of their own, so that the order of SQL is total.
    events = [{**row, "eid": f"{n:04d}"} for n, row in enumerate(events)]
    shuffled = random.Random(seed).sample(events, len(events))
    bounds = [0, *sorted(cuts), len(shuffled)]
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} seconds", event_id="eid", shards=shards) as harness:
        for first, last in pairwise(bounds):
            harness.process(shuffled[first:last])
            if lost:
                harness.lose_stores()
        found = {key: (row["event_time"], row["v"], row["s"]) for key, row in harness.rows().items()}
    assert found == latest_by_sql(events, "time_us, eid")


@given(
    rows=st.lists(event(st.integers(0, 400)), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    shards=st.integers(1, 3),
    lost=st.booleans(),
)
def test_by_offset_the_last_record_of_each_key_holds_whatever_its_time(
    rows: list[Row], cuts: list[int], shards: int, *, lost: bool
) -> None:
    rows = [{**row, "offset": n} for n, row in enumerate(rows)]
    model = Table(RETENTION_S * SECOND, by_offset=True)
    bounds = [0, *sorted(cuts), len(rows)]
    with TableHarness(COLUMNS, retention=f"{RETENTION_S} seconds", order="offset", shards=shards) as harness:
        for first, last in pairwise(bounds):
            output = harness.process(rows[first:last][::-1], tasks=2)
            changes, dead, counts = model.batch([{**row, "eid": None} for row in rows[first:last]])
            assert plain(output) == changes
            assert not dead
            assert {name: output.counts.get(name, 0) for name in counts} == counts
            if lost:
                harness.lose_stores()
        assert harness.markers() == {}
        found = {key: (row["event_time"], row["v"], row["s"]) for key, row in harness.rows().items()}
    assert found == latest_by_sql(rows, '"offset"')


@pytest.mark.parametrize("offsets", [False, True])
@given(
    rows=st.lists(event(st.integers(0, 3)), min_size=2, max_size=12),
    seed=st.integers(0, 1 << 30),
    cut=st.integers(0, 12),
)
def test_equal_times_have_one_latest_whatever_came_first(
    rows: list[Row], seed: int, cut: int, *, offsets: bool
) -> None:
    rows = [{**row, "offset": n % 3} if offsets else row for n, row in enumerate(rows)]
    shuffled = random.Random(seed).sample(rows, len(rows))
    tables = []
    for order in (rows, shuffled):
        with TableHarness(COLUMNS, event_id=None if offsets else "eid", offsets=offsets) as harness:
            for some in (order[:cut], order[cut:]):
                harness.process(some)
            tables.append({key: {**row, "revision": 0} for key, row in harness.rows().items()})
    model = Table(86_400 * SECOND)
    model.batch([{**row, "eid": None} if offsets else row for row in rows])
    assert tables[0] == tables[1] == model.rows()


def latest_by_sql(events: list[Row], order: str) -> dict[str, tuple[Any, ...]]:
    """Return the latest event of each key, but of those that it deletes."""
    names = {
        "key": pa.string(),
        "time_us": pa.int64(),
        "deleted": pa.bool_(),
        "eid": pa.string(),
        "v": pa.int64(),
        "s": pa.string(),
        "offset": pa.int64(),
    }
    rows = [{name: row.get(name) for name in names} for row in events]
    table = pa.Table.from_pylist(rows, schema=pa.schema(names.items()))
    with duckdb.connect() as database:
        database.register("given", table)
        found = database.execute(f"""
            select key, time_us, v, s from given
            qualify row_number() over (partition by key order by ({order}) desc) = 1 and not deleted""").fetchall()
    return {key: tuple(rest) for key, *rest in sorted(found)}
