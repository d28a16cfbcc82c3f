"""With `batch` messages that are added one at a time are computed as the harness computes batches of so many."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import ConfigError
from tests.standalone.kinds import JOINS, aggregator, changes_of, join, join_harness, messages, window_harness
from tests.standalone.ordered import sorted_rows
from tests.standalone.support import Row, Taker
from tests.support import examples

SIZE = 3


def groups(rows: list[Any]) -> list[list[Any]]:
    return [rows[at : at + SIZE] for at in range(0, len(rows), SIZE)]


@pytest.mark.parametrize("kind", ["tumbling", "sliding, each", "count, partition", "sessions"])
@examples(3)
@given(rows=st.lists(messages, max_size=11))
def test_gathered_messages_are_a_batch_of_the_harness(kind: str, rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as root, window_harness(kind) as harness:
        process, expected = changes_of(kind, harness), []
        for number, group in enumerate(groups(rows)):
            expected += process(group, (number * SIZE + len(group) - 1) * 2)
        with aggregator(kind, Path(root), batch=SIZE) as run:
            for number, row in enumerate(rows):
                run.add_message(row, position=number, partition=row["partition"], clock_us=number * 2)
            assert sorted_rows(run.get_result()) == sorted_rows(expected)
            counts = run.counts
            assert counts["input"] == len(rows) == sum(counts[n] for n in ("accepted", "late", "dead", "dropped"))
            assert [row["message"] for row in run.dead() if row["reason"] == "null key"] == [
                row for row in rows if row["key"] is None
            ]
            run.flush()
            assert run.positions() == {row["partition"]: number for number, row in enumerate(rows)}


@pytest.mark.parametrize("kind", JOINS)
@examples(3)
@given(rows=st.lists(st.tuples(st.sampled_from(["left", "right"]), messages), max_size=11))
def test_gathered_messages_of_a_join_are_a_batch_of_both_sides(kind: str, rows: list[tuple[str, Row]]) -> None:
    with tempfile.TemporaryDirectory() as root, join_harness(kind) as harness:
        expected = []
        for number, group in enumerate(groups(rows)):
            sides = ([row for of, row in group if of == side] for side in ("left", "right"))
            expected += harness.process(*sides, (number * SIZE + len(group) - 1) * 2).pairs
        with join(kind, Path(root), batch=SIZE) as run:
            for number, (side, row) in enumerate(rows):
                run.add_message(side, row, partition=row["partition"], clock_us=number * 2)
            assert sorted_rows(run.get_result()) == sorted_rows(expected)
            assert run.counts["input"] == len(rows)


def message(time: int, value: int = 1) -> Row:
    return {"key": "a", "time_us": time, "v": value}


def test_partitions_of_a_batch_are_in_their_order_as_those_of_a_table(tmp_path: Path) -> None:
    with aggregator("count", tmp_path / "w", batch=4) as run:
        for partition, value in ((2, 1), (0, 2), (0, 4), (0, 8)):
            run.add_message(message(4, value), partition=partition, clock_us=0)
        assert [row["total"] for row in run.get_result()] == [2 + 4 + 8]


def test_every_other_call_knows_what_is_gathered(tmp_path: Path) -> None:
    numbers = itertools.count()
    with aggregator("tumbling, each", tmp_path / "w", batch=100, keep_messages=True) as run:

        def added() -> int:
            number = next(numbers)
            run.add_message(message(4), position=number, clock_us=0)
            assert len(run._gathered) == 1
            return number + 1

        assert added() == run.counts["accepted"]
        assert added() == run.get_windows(0, 10)[0]["event_count"]
        assert added() == len(run.get_messages(0, 10))
        assert added() == run.get_result()[-1]["event_count"]
        added()
        assert run.timeout(1)
        assert len(run._gathered) == 0
        added()
        run.flush()
        assert run.positions() == {0: 5}
        added()
    with aggregator("tumbling, each", tmp_path / "w", keep_messages=True) as run:
        assert run.get_windows(0, 10)[0]["event_count"] == 6
        assert run.positions() == {0: 5}


def test_a_position_that_is_gathered_is_a_replay(tmp_path: Path) -> None:
    with aggregator("tumbling, each", tmp_path / "w", batch=3) as run:
        for position in (5, 5, 4, 6):
            run.add_message(message(4), position=position)
        assert (run.counts["replayed"], run.counts["accepted"]) == (2, 2)


def test_what_comes_downstream_gets_a_batch_at_once_and_closing_offers_the_rest(tmp_path: Path) -> None:
    taker = Taker()
    with aggregator("tumbling, each", tmp_path / "w", batch=2, downstream=taker) as run:
        run.add_message(message(4), position=1)
        assert (taker.taken, run.positions()) == ([], {})
        run.add_message(message(5), position=2)
        assert ([row["event_count"] for row in taker.taken], run.positions()) == ([2], {0: 2})
        run.add_message(message(6), position=3)
    assert [row["event_count"] for row in taker.taken] == [2, 3]
    with aggregator("tumbling, each", tmp_path / "w") as run:
        assert run.positions() == {0: 3}


def test_a_batch_that_fails_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with aggregator("tumbling, each", tmp_path / "w", batch=2) as run:
        run.add_message(message(4), position=1)
        with monkeypatch.context() as patch:
            patch.setattr(run, "_add", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.add_message(message(4), position=2)
        assert run.counts["input"] == 0
        for position in (1, 2):
            run.add_message(message(4), position=position)
        assert (run.counts["accepted"], run.counts["replayed"]) == (2, 0)


def test_the_latest_clock_of_its_messages_is_that_of_a_batch(tmp_path: Path) -> None:
    with aggregator("tumbling, each", tmp_path / "w", batch=2) as run:
        for clock in (-5, -7, 3, 4, 2, 1):
            run.add_message(message(4), clock_us=clock)
        assert [row["emitted_at"] for row in run.get_result()] == [-5, 4, 4]


def test_a_batch_has_one_message_at_least(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^batch: 0 is no number of messages; write 1 or more$"):
        aggregator("tumbling", tmp_path / "w", batch=0)
