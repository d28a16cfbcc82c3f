"""Rules of windows on slices, and the plan of a batch, as functions of small columns."""

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.aggregates import Events
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import lift
from sessionlake.aggregates.spec import build_aggregates
from sessionlake.columnar.arrays import Ints
from sessionlake.operators.shared.windowing.emission import EARLY, FOREVER, Firing
from sessionlake.operators.shared.windowing.slices import NO_PAIRS, Pairs, joined
from sessionlake.operators.windows.plan import coded
from sessionlake.operators.windows.rules import (
    Merged,
    blocks_of,
    changing_slices,
    grid_windows,
    listed_times,
    merge_slices,
    places_among,
)
from sessionlake.operators.windows.spec import Grid
from sessionlake.store.lists import NONE_LISTED, Listed
from sessionlake.store.slices import GRID, Slices

KEYS = pa.array(["a", "b", "c"])
HOPPING = Grid(20, 10, 0)


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def pairs(*each: tuple[int, int]) -> Pairs:
    return Pairs(ints(*(code for code, _ in each)), ints(*(time for _, time in each)))


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    return list(zip(pairs.codes.tolist(), pairs.time.tolist(), strict=True))


def slices(*each: tuple[int, int, int]) -> Slices:
    head = np.zeros(len(each), GRID)
    head["start"], head["count"] = [start for _, start, _ in each], [count for *_, count in each]
    head["revision"] = 1
    state = StateCodec(()).encode([], len(each))
    return Slices(ints(*(code for code, *_ in each)), head, state)


def merged(stored: Slices, parts: Pairs, count: Ints, touched: Pairs = NO_PAIRS) -> Merged:
    return merge_slices((), stored, parts, count, [], KEYS, batch_id=7, reach_us=3, touched=touched)


def rows(found: Slices) -> list[tuple[int, int, int, int]]:
    columns = (found.codes, found["start"], found["count"], found["revision"])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_changing_slices_are_distinct_and_own_their_parts() -> None:
    found = changing_slices(pairs((1, 10), (0, 20), (1, 10)), NO_PAIRS)
    assert listed(found.slices) == [(0, 20), (1, 10)]
    assert found.part.tolist() == [1, 0, 2]
    assert found.owner.tolist() == [0, 1, 1]


def test_a_touched_slice_changes_without_parts() -> None:
    found = changing_slices(pairs((1, 10)), pairs((0, 5), (1, 10)))
    assert listed(found.slices) == [(0, 5), (1, 10)]
    assert found.part.tolist() == [0]
    assert found.owner.tolist() == [1]


@pytest.mark.parametrize(
    ("at", "known", "place", "source"),
    [
        ([0, 2], [False, False], [0, 3], [2, 0, 1, 3]),  # before all, after all
        ([1], [True], [1], [0, 2]),  # in the place of a stored one
        ([1, 1], [False, True], [1, 2], [0, 2, 3]),  # a new one right before a known one
        ([], [], [], [0, 1]),
    ],
)
def test_places_among_stored_slices(at: list[int], known: list[bool], place: list[int], source: list[int]) -> None:
    found = places_among(2, ints(*at), np.array(known, bool))
    assert [column.tolist() for column in found] == [place, source]


def test_parts_are_merged_into_stored_slices_and_new_ones_stand_in_order() -> None:
    found = merged(slices((0, 10, 2), (1, 10, 5)), pairs((1, 10), (0, 20), (1, 10)), ints(1, 3, 4))
    assert rows(found.slices) == [(0, 10, 2, 1), (0, 20, 3, 7), (1, 10, 10, 7)]
    assert found.changed.tolist() == [False, True, True]
    assert found.before["revision"].tolist() == [-1, 1]


def test_nothing_changes_without_parts() -> None:
    found = merged(slices((0, 10, 2)), NO_PAIRS, ints())
    assert rows(found.slices) == [(0, 10, 2, 1)]
    assert not found.changed.any()


def test_states_are_merged_with_counts() -> None:
    total = build_aggregates({"total": "sum(amount)"}, {"amount": pa.int64()})
    codec, one = StateCodec(total), slices((0, 10, 1))

    def states(amount: int) -> list[pa.Array]:
        return lift(total, Events(pa.array(["a"]), ints(10), {"amount": pa.array([amount])})).states

    stored = Slices(one.codes, one.head, codec.encode(states(2), 1))
    found = merge_slices(
        total, stored, pairs((0, 10)), ints(1), states(5), KEYS, batch_id=7, reach_us=3, touched=NO_PAIRS
    )
    assert found.slices.state == codec.encode(states(7), 1)


def test_windows_of_slices_on_a_grid() -> None:
    every = Firing(EARLY, -FOREVER, FOREVER, 0)
    assert listed(grid_windows(HOPPING, pairs((0, 10), (0, 20)), every)) == [(0, 0), (0, 10), (0, 20)]
    until_30 = Firing(EARLY, 20, 30, 0)
    assert listed(grid_windows(HOPPING, pairs((0, 10), (0, 20)), until_30)) == [(0, 10)]


def test_lists_are_read_only_if_a_window_ends() -> None:
    assert listed_times(HOPPING, Firing(EARLY, 21, 29, 0), 100) is None
    assert listed_times(HOPPING, Firing(EARLY, 20, 30, 0), 100) == (10, 30)


def test_blocks_hold_whole_windows() -> None:
    assert listed(blocks_of(pairs((0, 70), (0, 90)), 20, 80)) == [(0, 0), (0, 1)]


def test_sets_of_slices_share_codes_by_name() -> None:
    keys, found = coded(
        {
            "parts": Listed(ints(1, 2), pa.array(["b", "a"])),
            "touched": NONE_LISTED,
            "remove": Listed(ints(3), pa.array(["c"])),
        }
    )
    assert keys.to_pylist() == ["a", "b", "c"]
    assert {name: listed(one) for name, one in found.items()} == {"parts": [(1, 1), (0, 2)], "remove": [(2, 3)]}
    assert coded({"parts": NONE_LISTED})[1] == {}


def test_joined_pairs_keep_their_order() -> None:
    assert listed(joined([pairs((1, 1)), NO_PAIRS, pairs((0, 0))])) == [(1, 1), (0, 0)]
    assert not len(joined([]))
