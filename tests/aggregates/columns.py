"""Columns of every type that aggregates take."""

import math
from datetime import UTC
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.operators.sessions.merging import Event, events

INT64 = np.iinfo(np.int64)
randoms = st.randoms(use_true_random=False)
cents = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-2))
moments = st.datetimes(timezones=st.just(UTC))
floats = st.floats(width=64)
TYPED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(INT64.min, INT64.max)),
    "int": (pa.int32(), st.integers(-3, 3)),
    "double": (pa.float64(), floats | st.sampled_from([0.0, -0.0, math.nan])),
    "string": (pa.string(), st.text(max_size=3) | st.sampled_from(["", "a", "ä", "\U0001f600", "\uffff"])),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(18, 2), cents),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), moments),
}
every_type = pytest.mark.parametrize("kind", TYPED)


def order_of(value: Any) -> tuple[bool, Any]:
    """NaN is the greatest number."""
    return (True, 0) if value != value else (False, value)  # noqa: PLR0124, only NaN differs from itself


def same(a: Any, b: Any) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and order_of(a) == order_of(b))


def typed(kind: str) -> st.SearchStrategy[list[Event]]:
    return events(TYPED[kind][1])
