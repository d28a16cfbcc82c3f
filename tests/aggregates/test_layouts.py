"""States of several layouts: an aggregate that was added is exact or null, never a number that is neither (rules 240 to 242)."""

import math
import pickle
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Aggregate, Events, States, build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.layouts import Added, Layout, Layouts
from sessionlake.aggregates.partials import merge_states, values_of
from sessionlake.columnar.arrays import Groups, concatenated
from sessionlake.serve.answer_columns import columns_of
from tests.aggregates.random_rows import TYPES, Row

TEXTS = (
    *("count()", "count(s)", "count_if(b)", "sum(i)", "sum(d)", "avg(d)", "min(s)", "max(d)", "product(d)"),
    *("first(s)", "last(i)", "min_by(s, d)", "max_by(s, i)", "mode(i)", "bool_or(b)", "bit_xor(i)", "stddev(d)"),
    *("corr(d, i)", "count_distinct(s)", "approx_count_distinct(i)", "approx_count_distinct(i, 0.1)", "median(d)"),
    *("percentile(d, 0.5)", "histogram(d)", "collect(s, 3)", "collect_set(s, 2)", "string_agg(s, '>', 3)"),
)
GROUPS = 4


@dataclass
class Stored:
    """A session as tables have it, and all that is in it."""

    state: bytes
    revision: int
    events: list[tuple[int, Row]]
    unknown: set[str] = field(default_factory=set)


class Pipeline:
    """Batches of events into a few sessions, which are merged by the newest layout; between batches aggregates come and go."""

    def __init__(self, random: Random, first: int) -> None:
        self.random, self.batch = random, 0
        self.texts = {f"a{n}": text for n, text in enumerate(random.sample(TEXTS, first))}
        self.since: dict[str, int] = {}
        self.gone: dict[str, str] = {}
        self.layouts = [Layout.of(0, self.texts, self.aggregates)]
        self.sessions: dict[int, Stored] = {}

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        built = build_aggregates(self.texts, TYPES, with_id=True)
        return tuple(Added(a, self.since[a.name]) if a.name in self.since else a for a in built)

    def add(self) -> None:
        """Of some that are added the archive has the columns, of others only from now on. Some were there before."""
        name = f"a{len(self.texts) + len(self.gone)}"
        if self.gone and self.random.random() < 0.5:
            name = self.random.choice(sorted(self.gone))
        self.texts[name] = self.gone.pop(name, self.random.choice(TEXTS))
        self.since[name] = self.random.choice([0, self.batch])
        self.layouts.append(Layout.of(self.batch, self.texts, self.aggregates))
        self.batch += 1

    def drop(self) -> None:
        name = self.random.choice(sorted(self.texts))
        self.gone[name] = self.texts.pop(name)
        self.since.pop(name, None)
        for stored in self.sessions.values():
            # As long as nothing touches a session its state has the aggregate.
            stored.unknown &= self.texts.keys() | {name}
        self.layouts.append(Layout.of(self.batch, self.texts, self.aggregates))
        self.batch += 1

    def newest(self, stored: Stored) -> States:
        made = Layouts.of([Layout.read(layout.fields()) for layout in self.layouts], self.aggregates)
        assert made is not None
        revisions = np.array([stored.revision, stored.revision])
        packed = pa.array([stored.state, None], pa.binary())
        found = pickle.loads(pickle.dumps(made)).newest(packed, made.number(revisions))  # noqa: S301 (our own)
        assert found[1].as_py() is None
        return StateCodec(self.aggregates).decode(found.slice(0, 1))

    def process(self, rows: list[Row]) -> None:
        for group in {row.group for row in rows}:
            mine = [row for row in rows if row.group == group]
            parts = [self.lifted(mine)]
            before = self.sessions.get(group)
            unknown: set[str] = set()
            if before is not None:
                parts.append(self.newest(before))
                unknown = (before.unknown & self.texts.keys()) | {n for n, is_new in self.new_since(before) if is_new}
            events = [] if before is None else before.events
            state = self.packed(parts)
            self.sessions[group] = Stored(state, self.batch, [*events, *((self.batch, row) for row in mine)], unknown)
        self.batch += 1

    def new_since(self, stored: Stored) -> list[tuple[str, bool]]:
        known = next(layout for layout in reversed(self.layouts) if layout.since <= stored.revision).texts
        return [(name, name not in known) for name in self.texts]

    def fill(self, group: int) -> None:
        """Compute a session again from its events as the archive has them."""
        stored = self.sessions[group]
        state = self.packed([self.lifted([row for _, row in stored.events], [batch for batch, _ in stored.events])])
        first = min(batch for batch, _ in stored.events)
        unknown = {name for name, since in self.since.items() if first < since}
        self.sessions[group] = Stored(state, self.batch, stored.events, unknown)
        self.batch += 1

    def lifted(self, rows: list[Row], batches: list[int] | None = None) -> States:
        columns = {name: pa.array([getattr(row, name) for row in rows], type_) for name, type_ in TYPES.items()}
        keys, ids = (pa.array(values, pa.string()) for values in (["k"] * len(rows), [row.id for row in rows]))
        times = np.array([row.time for row in rows], np.int64)
        batch = None if batches is None else np.array(batches, np.int64)
        events = Events(keys, times, columns, ids, batch=batch)
        return [column for aggregate in self.aggregates for column in aggregate.lift(events)]

    def packed(self, parts: list[States]) -> bytes:
        together: States = [concatenated(list(columns)) for columns in zip(*parts, strict=True)]
        if not together:
            return b""
        order = pa.array(self.random.sample(range(len(together[0])), len(together[0])), pa.int64())
        merged = merge_states(
            self.aggregates, [column.take(order) for column in together], Groups(np.array([0]), len(order))
        )
        return StateCodec(self.aggregates).encode(merged, 1)[0].as_py()  # type: ignore[no-any-return]

    def check(self) -> None:
        plain = build_aggregates(self.texts, TYPES, with_id=True)
        for stored in self.sessions.values():
            states = self.newest(stored)
            unknown = (stored.unknown & self.texts.keys()) | {n for n, is_new in self.new_since(stored) if is_new}
            every = self.lifted([row for _, row in stored.events])
            if not every:
                continue
            merged = merge_states(self.aggregates, every, Groups(np.array([0]), len(every[0])))
            wanted = values_of(self.aggregates, merged)
            one = StateCodec(self.aggregates).decode_one(StateCodec(self.aggregates).encode(states, 1)[0].as_py())
            for aggregate, column, value, expected in zip(
                plain, columns_of(self.aggregates), values_of(self.aggregates, states), wanted, strict=True
            ):
                told = expected[0].as_py()
                if aggregate.name in unknown:
                    assert value[0].as_py() is None
                    assert column.json_values([one], "us") == [None]
                else:
                    assert close(value[0].as_py(), told), self.texts[aggregate.name]


def close(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(found) and math.isnan(wanted))
    return bool(found == wanted)


def row_of(random: Random, number: int) -> Row:
    some = random.randrange(-9, 9), random.randrange(-80, 80) / 8, random.choice("abcä"), random.random() < 0.5
    values: list[Any] = [None if random.random() < 0.2 else value for value in some]
    return Row(random.randrange(GROUPS), random.randrange(50), f"e{number}", *values)


def play(seed: int) -> None:
    random = Random(seed)
    of = Pipeline(random, random.randrange(4))
    for number in range(random.randrange(4, 12)):
        step = random.random()
        if step < 0.3:
            of.add()
        elif step < 0.45 and of.sessions:
            of.fill(random.choice(sorted(of.sessions)))
        elif step < 0.6 and of.texts:
            of.drop()
        else:
            of.process([row_of(random, 100 * number + n) for n in range(random.randrange(1, 9))])
        of.check()


@given(st.integers(0, 1 << 32))
def test_an_added_aggregate_is_exact_or_null(seed: int) -> None:
    play(seed)


def test_a_state_of_a_layout_that_is_not_known_is_none() -> None:
    (count,) = build_aggregates({"n": "count()"}, {})
    first = Layout.of(0, {"n": "count()"}, [count])
    both = (count, Added(build_aggregates({"m": "count()"}, {})[0]))
    layouts = Layouts.of([first, Layout.of(5, {"n": "count()", "m": "count()"}, both)], both)
    assert layouts is not None
    states = pa.concat_arrays([StateCodec([count]).encode([pa.array([3])], 1)] * 2)
    found = layouts.newest(states, np.array([0, 2]))
    assert StateCodec(both).decode_one(found[0].as_py()) == [3, None, 1]
    assert found[1].as_py() is None
    with pytest.raises(TypeError, match="can't say"):
        Layouts((first, first), (count, build_aggregates({"m": "count()"}, {})[0])).newest(states, np.array([0, 0]))


def test_an_aggregate_that_comes_back_knows_the_states_that_had_it() -> None:
    (n, m) = build_aggregates({"n": "count()", "m": "count()"}, {})
    both = {"n": "count()", "m": "count()"}
    first, without = Layout.of(0, both, [n, m]), Layout.of(5, {"n": "count()"}, [n])
    layouts = Layouts((first, without, Layout.of(9, both, [n, Added(m)])), (n, Added(m)))
    states = pa.concat_arrays(
        [StateCodec([n, m]).encode([pa.array([3]), pa.array([4])], 1), StateCodec([n]).encode([pa.array([5])], 1)]
    )
    found = layouts.newest(states, layouts.number(np.array([4, 5])))
    assert [StateCodec(layouts.aggregates).decode_one(state) for state in found.to_pylist()] == [
        [3, 4, 0],
        [5, None, 1],
    ]
