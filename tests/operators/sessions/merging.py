"""Run one aggregate over rows: lifted in random splits, merged along a random tree, from arrays that are slices."""

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sessionlake.aggregates import Aggregate, Events, States, build_aggregates
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Groups


class Event(NamedTuple):
    group: int
    time: int
    id: str | None
    value: Any


class Part(NamedTuple):
    groups: np.ndarray
    states: States


def events(values: st.SearchStrategy[Any], groups: int = 3, size: int = 30) -> st.SearchStrategy[list[Event]]:
    ids = st.none() | st.sampled_from(["", "a", "b", "é", "z"])
    event = st.builds(Event, st.integers(0, groups - 1), st.integers(-2, 4), ids, st.none() | values)
    return st.lists(event, min_size=1, max_size=size)


def sliced(values: list[Any], type_: pa.DataType, random: Random) -> pa.Array:
    """Return the values as a slice of a longer array, with a validity bitmap that starts in mid-byte."""
    before, after = random.randrange(4), random.randrange(3)
    some = [v for v in values if v is not None][:1] or [None]
    padding = [random.choice([None, *some]) for _ in range(before + after)]
    return pa.array(padding[:before] + values + padding[before:], type_).slice(before, len(values))


def lifted(aggregate: Aggregate, rows: list[Event], type_: pa.DataType, random: Random) -> Part:
    columns = {"x": sliced([r.value for r in rows], type_, random)}
    keys = pa.array([f"k{r.group}" for r in rows], pa.string())
    ids = sliced([r.id for r in rows], pa.string(), random)
    states = aggregate.lift(Events(keys, np.array([r.time for r in rows], np.int64), columns, ids))
    assert tuple(s.type for s in states) == aggregate.state
    return Part(np.array([r.group for r in rows], np.int64), states)


def merged(aggregate: Aggregate, parts: list[Part], random: Random) -> Part:
    groups = np.concatenate([p.groups for p in parts])
    states = [pa.concat_arrays(columns) for columns in zip(*(p.states for p in parts), strict=True)]
    shuffled = np.array(random.sample(range(len(groups)), len(groups)), np.int64)
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]
    present, starts = np.unique(groups[order], return_index=True)
    taken = [column.take(pa.array(order)) for column in states]
    keys = pa.array([f"k{g}" for g in present])
    out = merge_states([aggregate], taken, Groups(starts, len(order), lambda: keys))
    assert tuple(s.type for s in out) == aggregate.state
    return Part(present, out)


def values_of(
    text: str, type_: pa.DataType, rows: list[Event], random: Random, *, with_id: bool = True
) -> dict[int, Any]:
    """Return each group's value after a random split and a random tree of merges."""
    (aggregate,) = build_aggregates({"a": text}, {"x": type_}, with_id=with_id)
    cuts = sorted(random.sample(range(1, len(rows)), random.randrange(min(len(rows), 5)))) if len(rows) > 1 else []
    parts = [lifted(aggregate, rows[a:b], type_, random) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    return values_in(aggregate, parts, random)


def values_in(aggregate: Aggregate, parts: list[Part], random: Random) -> dict[int, Any]:
    """Return each group's value, after the merge of parts along a random tree."""
    while len(parts) > 1:
        random.shuffle(parts)
        some = random.randint(2, len(parts))
        parts = [merged(aggregate, parts[:some], random), *parts[some:]]
    last = merged(aggregate, parts, random)
    values = aggregate.value(last.states)
    values.validate(full=True)
    assert values.type == aggregate.value_type
    return dict(zip(last.groups.tolist(), values.to_pylist(), strict=True))


def by_group(rows: list[Event]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return found
