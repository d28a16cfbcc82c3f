"""The equal fields of both inputs: pairs of columns whose values can be equal (docs/rules.md, rule 465)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sessionlake.columnar.equality import instant
from sessionlake.operators.shared.sides.columns import AnySide
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.sources.equal_types import Compared, check_pair

Pairs = Sequence[tuple[str, str]]


def comparable(
    at: str, on: Pairs, casts: Sequence[tuple[bool, bool]], left: AnySide, right: AnySide
) -> tuple[AnySide, AnySide]:
    """Return both sides, each with the types as which its equal fields `on` are compared; NeverEqualError for types that are never equal.

    `at` is the key that names the fields; `casts` say of each pair which fields are compared as texts.
    """
    sides = (left, right)
    as_: list[list[pa.DataType | None]] = [[], []]
    for pair, cast in zip(on, casts, strict=True):
        one, other = (
            Compared(name, side.events.types[name], is_text)
            for name, side, is_text in zip(pair, sides, cast, strict=True)
        )
        check_pair(at, one, other)
        as_[0].append(instant(one.type, other.type))
        as_[1].append(instant(other.type, one.type))
    found = (_compared(side, own) if any(own) else side for side, own in zip(sides, as_, strict=True))
    return next(found), next(found)


def _compared(side: Any, as_: Sequence[pa.DataType | None]) -> Any:
    return replace(side, events=replace(side.events, compared_as=tuple(as_)))


def equal_types(on: Pairs, known: Mapping[str, Mapping[str, pa.DataType]]) -> dict[str, dict[str, pa.DataType]]:
    """Return the known types of columns by side; an equal field without one has that of the other side, from which it does not differ.

    >>> equal_types([("order_id", "id")], {"left": {}, "right": {"id": pa.string()}})["left"]
    {'order_id': DataType(string)}
    """
    found = {side: dict(types) for side, types in known.items()}
    for pair in on:
        for i, side in enumerate(SIDES):
            other = known[SIDES[1 - i]].get(pair[1 - i])
            if other is not None:
                found[side].setdefault(pair[i], other)
    return found
