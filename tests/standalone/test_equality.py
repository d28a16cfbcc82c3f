"""The standalone API gives what the harnesses give, which run the operators without it, batch by batch."""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.standalone import WindowedAggregator
from tests.standalone.kinds import (
    JOINS,
    WINDOWS,
    aggregator,
    changes_of,
    join,
    join_harness,
    messages,
    window_harness,
)
from tests.standalone.ordered import sorted_rows
from tests.standalone.support import Row
from tests.support import examples

KINDS = [*WINDOWS, "sessions"]
batches = st.lists(st.lists(messages, max_size=4), min_size=1, max_size=12)
"""Batches of messages; one without any is a timeout."""
TABLE = pa.schema([("key", pa.string()), ("time_us", pa.int64()), ("v", pa.int64())])


def add(run: WindowedAggregator, rows: Sequence[Row], clock: int) -> list[Row]:
    """Add messages as a batch, one as such and more as a table; return what it gave."""
    seen = len(run.get_result())
    if not rows:
        run.timeout(clock)
    elif len(rows) == 1:
        run.add_message(rows[0], partition=rows[0]["partition"], clock_us=clock)
    else:
        table = pa.Table.from_pylist(list(rows), schema=TABLE)
        run.add_messages(table, partitions=[row["partition"] for row in rows], clock_us=clock)
    return run.get_result()[seen:]


@pytest.mark.parametrize("kind", KINDS)
@examples(4)
@given(given_batches=batches)
def test_each_batch_is_the_harnesss(kind: str, given_batches: list[list[Row]]) -> None:
    with tempfile.TemporaryDirectory() as root, window_harness(kind) as harness, aggregator(kind, Path(root)) as run:
        process = changes_of(kind, harness)
        for number, rows in enumerate(given_batches):
            assert sorted_rows(add(run, rows, number * 3)) == sorted_rows(process(rows, number * 3))
        counts = run.counts
        assert counts["input"] == sum(map(len, given_batches))
        assert counts["input"] == sum(counts[name] for name in ("accepted", "late", "dead", "dropped"))
        assert (counts["late"], counts["dead"]) == (len(run.late()), len(run.dead()))


@pytest.mark.parametrize("kind", JOINS)
@examples(5)
@given(
    given_batches=st.lists(st.tuples(st.sampled_from(["left", "right"]), st.lists(messages, max_size=4)), max_size=12)
)
def test_each_batch_of_a_join_is_the_harnesss(kind: str, given_batches: list[tuple[str, list[Row]]]) -> None:
    with tempfile.TemporaryDirectory() as root, join_harness(kind) as harness, join(kind, Path(root)) as run:
        for number, (side, rows) in enumerate(given_batches):
            seen = len(run.get_result())
            if rows:
                table = pa.Table.from_pylist(rows, schema=TABLE)
                partitions = [row["partition"] for row in rows]
                run.add_messages(side, table, partitions=partitions, clock_us=number * 3)
            else:
                run.timeout(number * 3)
            left, right = (rows, []) if side == "left" else ([], rows)
            output = harness.process(left, right, number * 3)
            assert sorted_rows(run.get_result()[seen:]) == sorted_rows(output.pairs)
            told = [(row["side"], row["time_us"]) for row in run.late()[len(run.late()) - len(output.late) :]]
            assert told == [(row["side"], row["time_us"]) for row in output.late]
        counts = run.counts
        assert counts["input"] == sum(len(rows) for _, rows in given_batches)
        assert counts["input"] == sum(counts[name] for name in ("accepted", "late", "dead", "dropped"))


@pytest.mark.parametrize("kind", ["tumbling, each", "sliding, each", "sessions"])
@examples(4)
@given(rows=st.lists(messages, min_size=1, max_size=12))
def test_one_at_a_time_ends_as_all_at_once(kind: str, rows: list[Row]) -> None:
    """While nothing is late, the last row of each window does not depend on the batches: their times span the retention at most."""
    rows = [{**row, "time_us": row["time_us"] // 3, "partition": 0} for row in rows]

    def last(outputs: list[Row]) -> dict[Any, Row]:
        of = "session" if kind == "sessions" else "window"
        found: dict[Any, Row] = {}
        for row in outputs:
            identity = row[f"{of}_key"], row[f"{of}_start"]
            found.pop(identity, None)
            if row["op"] == "upsert":
                found[identity] = {n: v for n, v in row.items() if n not in ("revision", "trigger", "emitted_at")}
        return found

    if kind == "sessions":
        rows = [{**row, "time_us": row["time_us"] % 10} for row in rows]
    with (
        tempfile.TemporaryDirectory() as root,
        aggregator(kind, Path(root, "one")) as one,
        aggregator(kind, Path(root, "all")) as every,
    ):
        for row in rows:
            one.add_message(row, clock_us=0)
        every.add_messages(pa.Table.from_pylist(rows, schema=TABLE), clock_us=0)
        assert one.late() == every.late() == []
        got = last(one.get_result())
        assert got == last(every.get_result())
        names = ("total", "last", "middle")
        ordered = [row for _, row in sorted(got.items(), key=lambda item: (item[0][1], item[0][0]))]
        for run in (one, every):
            found = run.get_windows(-100, 100)
            assert [[w[n] for n in names] for w in found] == [[row[n] for n in names] for row in ordered]


def test_positions_in_a_table_skip_what_is_at_or_below_the_greatest_so_far(tmp_path: Path) -> None:
    rows = [{"key": "a", "time_us": 1, "v": v} for v in (1, 2, 4, 8, 16, 32)]
    with aggregator("tumbling, each", tmp_path / "w") as run:
        table = pa.Table.from_pylist(rows, schema=TABLE)
        run.add_messages(table, positions=[5, 5, 7, 6, 6, 9], partitions=[0, 2, 0, 0, 2, 0], clock_us=0)
        (window,) = run.get_windows(0, 10)
        assert window["total"] == 1 + 2 + 4 + 16 + 32
        run.add_message(rows[0], position=9, clock_us=0)
        run.add_message(rows[0], position=7, partition=2, clock_us=0)
        run.add_messages(table, positions=pa.array([1, 2, 3, 4, 5, 6]), clock_us=0)
        (window,) = run.get_windows(0, 10)
        assert (window["total"], run.counts["replayed"]) == (1 + 2 + 4 + 16 + 32 + 1, 1 + 1 + 6)
        run.flush()
        assert run.positions() == {0: 9, 2: 7}


def test_batches_of_all_sizes(tmp_path: Path) -> None:
    """100 messages in tables of 1 to 13 rows give the windows of plain Python, whatever lies in the overlay or on disk."""
    rows = [{"key": "abc"[i % 3], "time_us": i * 7 % 40, "v": i} for i in range(100)]
    with aggregator("tumbling, each", tmp_path / "w") as run:
        left = list(rows)
        for number in itertools.cycle(range(1, 14)):
            run.add_messages(pa.Table.from_pylist(left[:number], schema=TABLE), clock_us=0)
            left = left[number:]
            if number % 3 == 0:
                run.flush()
            if not left:
                break
        expected: dict[tuple[int, str], list[int]] = {}
        for row in rows:
            expected.setdefault(((row["time_us"] - 3) // 10 * 10 + 3, row["key"]), []).append(row["v"])
        found = [(w["window_start"], w["window_key"], w["event_count"], w["total"]) for w in run.get_windows(-50, 50)]
        assert found == [(*identity, len(values), sum(values)) for identity, values in sorted(expected.items())]
        only = [(w["window_start"], w["window_key"]) for w in run.get_windows(13, 22, "b")]
        assert only == [(13, "b")]
