"""Each batch of a join of tables beside a model that joins all rows anew: any batches, signs, shards, types, and lost stores."""

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import PipelineStateError, StoreError
from sessionlake.operators.table_joins import rules, store
from sessionlake.testing import Harness
from tests.oracle.table_joins import TableJoin, TakenBackError
from tests.support import examples

SCHEMA = {"a": "string", "b": "long", "c": "string", "d": "long", "v": "long", "w": "string"}
OUTER: dict[str, tuple[str, ...]] = {"inner": (), "left": ("left",), "right": ("right",), "full": ("left", "right")}


def config(type_: str = "inner", fields: int = 2) -> dict[str, Any]:
    """Return a join by a = c, and b = d."""

    def side(name: str, column: str) -> dict[str, Any]:
        source = {"kind": "change_feed", "path": name}
        return {"name": name, "columns": [column], "source": source, "event": {}}

    on = ["a = c", "b = d"][:fields]
    return {"table_join": {"on": on, "type": type_, "left": side("one", "v"), "right": side("two", "w")}}


def told(side: str, row: tuple[Any, ...]) -> dict[str, Any]:
    names = ("a", "b", "v") if side == "left" else ("c", "d", "w")
    return dict(zip(names if len(row) == 3 else (names[0], names[2]), row, strict=True))


class Followed:
    """The results as a reader of the changes has them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def take(self, changes: list[dict[str, Any]], batch: int) -> None:
        """Take a batch's changes, which name each result once, delete what is there, and write what is new or another one."""
        named = [(c["joined_row_key"], c["left_position"], c["right_position"]) for c in changes]
        assert len({*named}) == len(named)
        for name, change in zip(named, changes, strict=True):
            assert change["revision"] == batch
            if change["op"] == "delete":
                del self.rows[name]
                continue
            row = tuple(
                None if position == 0 else (change[column],)
                for position, column in zip(name[1:], ("one_v", "two_w"), strict=True)
            )
            assert self.rows.get(name) != row
            self.rows[name] = row

    def results(self) -> Counter[Any]:
        return Counter(self.rows.values())


def process(harness: Harness, given: list[tuple[str, tuple[Any, ...], int]]) -> Any:
    some: dict[int, dict[str, list[dict[str, Any]]]] = {1: {"left": [], "right": []}, -1: {"left": [], "right": []}}
    for at, (side, row, sign) in enumerate(given):
        some[sign][side].append({**told(side, row), "partition": at % 3})
    return harness.process(some[1], taken_back=some[-1])


TEXTS = ("a", "b", 'q"', "", "\\", "long" * 20, None)
"""Fields, the first ones more often than the last."""


def drawn(rng: random.Random, side: str, fields: int) -> tuple[str, tuple[Any, ...], int]:
    """Return a row of few fields and columns, so that many are equal and many have partners."""
    on = (TEXTS[min(rng.randrange(len(TEXTS)) for _ in range(3))], rng.choice([0, 0, 1, None]))[:fields]
    return side, (*on, rng.choice([None, 0, 1, 2] if side == "left" else [None, "x", "y"])), 1


@examples(160)
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(sorted(OUTER)), st.sampled_from([1, 2]), st.booleans())
def test_results_follow_the_rows_of_both_sides(
    seed: int,
    shards: int,
    type_: str,
    fields: int,
    small: bool,  # noqa: FBT001
) -> None:
    rng, model, followed = random.Random(seed), TableJoin(fields, OUTER[type_]), Followed()
    bounds = {"FULL": 2, "SPARSE": 1} if small else {"FULL": 64}
    with patch.multiple(store, **bounds), Harness(config(type_, fields), schema=SCHEMA, shards=shards) as harness:
        for batch in range(rng.randrange(2, 9)):
            there = [(side, one, -1) for side, rows in model.rows.items() for one in rows.elements()]
            back = rng.sample(there, rng.choice([0, len(there) // 4, len(there) // 2, len(there)]))
            sides = rng.choice([("left",), ("right",), ("left", "right")])
            fresh = [drawn(rng, side, fields) for side in sides for _ in range(rng.choice([0, 1, 5, 12]))]
            gone = [(side, row, -1) for side, row, _ in rng.sample(fresh, rng.randrange(len(fresh) + 1))]
            given = rng.sample([*back, *fresh, *gone], len(back) + len(fresh) + len(gone))
            output = process(harness, given)
            model.batch(given)
            followed.take(output.changes, batch)
            assert followed.results() == model.results()
            counts = output.counts
            assert (counts.get("accepted", 0), counts.get("taken_back", 0)) == (len(given), len(back) + len(gone))
            if rng.random() < 0.3:
                harness.lose_stores()


def test_the_same_rows_in_any_order_give_the_same_changes() -> None:
    """A batch that is run again reads them in the order in which its tasks bring them."""
    rng = random.Random(0)
    rows = [drawn(rng, side, 1) for side in ("left", "right") * 30]
    back = [(side, row, -1) for side, row, _ in rng.sample(rows, 20)]
    found = []
    for _ in range(4):
        with Harness(config("full", 1), schema=SCHEMA) as harness:
            first = process(harness, rng.sample(rows, len(rows))).changes
            found.append((first, process(harness, rng.sample(back, len(back))).changes))
    assert all(one == found[0] for one in found)


def stored(harness: Harness) -> int:
    """Return how many values the one store of a harness has."""
    (opened,) = harness.stores(harness._build())
    return len(opened._db.items(store.SEGMENT)) if store.SEGMENT in opened._db.segments else 0


def test_buckets_grow_and_shrink_with_the_rows_and_go_with_the_last_one() -> None:
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        rows = [("left", ("u", n), 1) for n in range(1000)]
        numbers = []
        for given in (
            rows[:64],
            rows[64:],
            [(s, r, -1) for s, r, _ in rows[10:]],
            [(s, r, -1) for s, r, _ in rows[:10]],
        ):
            process(harness, given)
            numbers.append(stored(harness))
        assert numbers == [2, 1 + 32, 2, 0]


def test_a_row_of_many_partners_changes_all_of_them_and_one_of_these_itself_alone() -> None:
    """A hot key is cut into buckets, and put together again."""
    model, followed = TableJoin(1), Followed()
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        batches = [
            [("right", ("u", "de"), 1), *(("left", ("u", n), 1) for n in range(1000))],
            [("left", ("u", 7), -1), ("left", ("u", 7000), 1)],
            [("right", ("u", "de"), -1), ("right", ("u", "fr"), 1)],
            [("left", ("u", n), -1) for n in range(1000) if n not in (7, 500)],
            [("left", ("u", 1), 1)],
        ]
        sizes = []
        for number, batch in enumerate(batches):
            output = process(harness, batch)
            model.batch(batch)
            followed.take(output.changes, number)
            assert followed.results() == model.results()
            sizes.append(len(output.changes))
    assert sizes == [1000, 1, 1000, 998, 1]


def test_a_key_that_is_cut_again_keeps_the_rows_that_the_batch_does_not_name() -> None:
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        rows = [("left", ("u", n), 1) for n in range(257)]
        back = [(side, row, -1) for side, row, _ in rows]
        cuts, there = (
            [(rows[:65], 65), (rows[65:256], 256), (rows[256:], 257), (back[:129], 128), (back[129:130], 127)],
            [],
        )
        for given, number in cuts:
            process(harness, given)
            added = process(harness, [("right", ("u", "de"), 1)]).changes
            gone = process(harness, [("right", ("u", "de"), -1)]).changes
            there.append((len(added), len(gone), number))
    assert there == [(number, number, number) for *_, number in there]


def test_more_rows_taken_back_than_given_is_one_line_and_changes_nothing() -> None:
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        process(harness, [("left", ("u", 1), 1), ("right", ("u", "de"), 1)])
        for wrong in ([("left", ("u", 2), -1)], [("left", ("u", 1), -1)] * 2, [("right", ("k", "de"), -1)]):
            model = TableJoin(1)
            model.batch([("left", ("u", 1), 1), ("right", ("u", "de"), 1)])
            with pytest.raises(TakenBackError):
                model.batch(wrong)
            with pytest.raises(PipelineStateError) as raised:
                process(harness, wrong)
            assert str(raised.value).startswith("table_join: rows are taken back that were not given")
            assert "sessionlake rebuild" in str(raised.value)
            assert "\n" not in str(raised.value)
        (change,) = process(harness, [("left", ("u", 1), -1)]).changes
        assert change["op"] == "delete"


def test_a_row_that_changes_keeps_its_place_in_its_key_alone() -> None:
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        (first,) = process(
            harness, [("left", ("u", 1), 1), ("right", ("u", "de"), 1), ("right", ("k", "fr"), 1)]
        ).changes
        (second,) = process(harness, [("left", ("u", 1), -1), ("left", ("u", 2), 1)]).changes
        moved = process(harness, [("left", ("u", 2), -1), ("left", ("k", 2), 1)]).changes
    places = ("joined_row_key", "left_position", "right_position")
    assert [second[name] for name in places] == [first[name] for name in places]
    assert sorted((c["op"], c["joined_row_key"], c["left_position"]) for c in moved) == [
        ("delete", "u", first["left_position"]),
        ("upsert", "k", 2 * 2**32 + 1),
    ]


def test_equal_rows_that_are_exchanged_write_nothing() -> None:
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        process(harness, [("left", ("u", 1), 1), ("right", ("u", "de"), 1)])
        output = process(harness, [("left", ("u", 1), -1), ("left", ("u", 1), 1)])
    assert (output.changes, output.counts["upserts"], output.counts["deletes"]) == ([], 0, 0)


def test_rows_without_a_key_are_in_results_only_if_they_may_be_alone() -> None:
    rows = [("left", (None, 1), 1), ("right", (None, "x"), 1)]
    both = [(None, "x"), (1, None)]
    for type_, alone in (("inner", []), ("left", both[1:]), ("right", both[:1]), ("full", both)):
        with Harness(config(type_, 1), schema=SCHEMA) as harness:
            output = process(harness, rows)
            assert [(c["one_v"], c["two_w"]) for c in output.changes] == alone
            assert output.counts["without_key"] == 2 - len(alone)
            assert output.counts["accepted"] == 2
            assert {c["joined_row_key"] for c in output.changes} <= {"[null]"}


def test_a_text_that_is_called_as_rows_without_a_key_is_a_dead_letter() -> None:
    with Harness(config("full", 1), schema=SCHEMA) as harness:
        output = process(harness, [("left", ("[null]", 1), 1), ("left", (None, 2), 1)])
        assert [row["reason"] for row in output.dead] == ["key '[null]' is the name of rows without one"]
        assert [c["one_v"] for c in output.changes] == [2]
    with Harness(config("full", 2), schema=SCHEMA) as harness:
        output = process(harness, [("left", ("[null]", None, 1), 1), ("left", ('"', None, 2), 1)])
        assert output.dead == []
        assert sorted(c["joined_row_key"] for c in output.changes) == ['["[null]",null]', '["\\"",null]']


def test_a_key_that_is_too_long_is_a_dead_letter() -> None:
    given = config(fields=1)
    given["table_join"]["left"]["event"] = {"max_key_bytes": 3}
    with Harness(given, schema=SCHEMA) as harness:
        output = process(harness, [("left", ("long", 1), 1), ("left", ("abc", 2), 1)])
    assert [row["reason"] for row in output.dead] == ["key too long: 4 bytes, event.max_key_bytes is 3"]
    assert (output.counts["input"], output.counts["accepted"], output.counts["dead"]) == (2, 1, 1)


def test_more_results_than_a_batch_may_change_are_one_line() -> None:
    given = [*(("left", ("u", n), 1) for n in range(3)), *(("right", ("u", n), 1) for n in "xyz")]
    told = r"^pipeline\.shards: 9 results of one shard change in a batch"
    with (
        patch.object(rules, "LIMIT", 8),
        Harness(config(fields=1), schema=SCHEMA) as harness,
        pytest.raises(StoreError, match=told),
    ):
        process(harness, given)


def test_a_tombstone_deletes_a_result_until_one_of_its_rows_changes() -> None:
    with Harness(config(fields=1), schema=SCHEMA) as harness:
        (row,) = process(harness, [("left", ("u", 1), 1), ("right", ("u", "de"), 1)]).changes
        named = {"ordinal": row["left_position"], "other_ordinal": row["right_position"]}
        tombstone = {"kind": "tombstone", "key": "u", "start_time": 0, **named}
        output = harness.process({}, corrections=[tombstone, {**tombstone, "ordinal": None}])
        assert [change["op"] for change in output.changes] == ["delete"]
        assert (output.counts["applied"], output.counts["malformed"]) == (1, 1)
        changed = {"left": [{"a": "u", "v": 2}]}, {"left": [{"a": "u", "v": 1}]}
        (again,) = harness.process(changed[0], taken_back=changed[1], corrections=[tombstone]).changes
        assert (again["op"], again["one_v"]) == ("upsert", 2)
