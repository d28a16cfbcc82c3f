"""Rows of which some are taken back, and their states after a merge of random parts in any order."""

from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sessionlake.aggregates import Aggregate, Events, build_aggregates
from sessionlake.aggregates.codec import StateCodec
from tests.aggregates.columns import INT64
from tests.operators.sessions.merging import Part, merged

TYPES = {
    "n": pa.int64(),
    "i": pa.int32(),
    "c": pa.decimal128(18, 2),
    "d": pa.float64(),
    "f": pa.float32(),
    "s": pa.string(),
    "b": pa.bool_(),
    "t": pa.timestamp("us", "UTC"),
}


class Row(NamedTuple):
    group: int
    n: int | None
    i: int | None
    c: Decimal | None
    d: float | None
    f: float | None
    s: str | None
    b: bool | None
    t: int | None


class Net:
    """A class of a user's: the net of two columns."""

    columns = ("n", "i")
    value_type = "string"

    def initializer(self) -> int:
        return 0

    def aggregator(self, _key: str, event: dict[str, Any], aggregate: int) -> int:
        return aggregate + (event["n"] or 0) - (event["i"] or 0)

    def merger(self, _key: str, left: int, right: int) -> int:
        return left + right

    def inverse(self, aggregate: int) -> int:
        return -aggregate


class Grown(Net):
    """One that can't take rows back."""

    inverse = None  # type: ignore[assignment]


NULLS = Row(0, *[None] * len(TYPES))
FEW = {
    "n": st.integers(INT64.min, INT64.max) | st.integers(-3, 3) | st.sampled_from([INT64.min, INT64.max]),
    "i": st.integers(-3, 3),
    "c": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "d": st.floats() | st.sampled_from([0.0, -0.0, 0.1, 1e16, 1e308, 5e-324]) | st.integers(-9, 9).map(float),
    "f": st.floats(width=32),
    "s": st.sampled_from(["", "a", "ä", "b\0"]),
    "b": st.booleans(),
    "t": st.integers(-5, 5),
}
rows = st.lists(st.builds(Row, st.integers(0, 2), *(st.none() | FEW[name] for name in TYPES)), max_size=25)


def signed(text: str) -> Aggregate:
    (aggregate,) = build_aggregates({"a": text}, TYPES, subtracts=True)
    return aggregate


def lifted(aggregate: Aggregate, some: list[Row], sign: int = 1) -> Part:
    columns = {name: pa.array([getattr(row, name) for row in some], type_) for name, type_ in TYPES.items()}
    keys = pa.array([f"k{row.group}" for row in some], pa.string())
    times = np.array([row.t or 0 for row in some], np.int64)
    ids = pa.array([None if row.i is None else str(row.i) for row in some], pa.string())
    states = aggregate.lift(Events(keys, times, columns, ids))
    if sign < 0:
        inverse = aggregate.inverted(states)
        assert inverse is not None
        states = inverse
    assert tuple(column.type for column in states) == aggregate.state
    return Part(np.array([row.group for row in some], np.int64), states)


def merged_parts(aggregate: Aggregate, parts: list[Part], random: Random) -> Part:
    """Return the parts merged along a random tree."""
    while len(parts) > 1:
        random.shuffle(parts)
        some = random.randint(2, len(parts))
        parts = [merged(aggregate, parts[:some], random), *parts[some:]]
    return merged(aggregate, parts, random)


def split(some: list[Any], random: Random) -> list[list[Any]]:
    """Return the rows in any order, cut into parts; no part is empty."""
    some = random.sample(some, len(some))
    cuts = sorted(random.sample(range(1, len(some)), random.randrange(min(len(some), 5)))) if len(some) > 1 else []
    return [some[a:b] for a, b in zip([0, *cuts], [*cuts, len(some)], strict=True) if a < b]


def states_by_group(aggregate: Aggregate, part: Part) -> dict[int, bytes]:
    packed = StateCodec([aggregate]).encode(part.states, len(part.groups))
    return dict(zip(part.groups.tolist(), packed.to_pylist(), strict=True))
