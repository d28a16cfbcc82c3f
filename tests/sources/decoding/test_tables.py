"""The texts of rows that are columns: `redeem` reads them again."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.tables import text_of_rows

TIME = pa.timestamp("us", "UTC")
COLUMNS = {
    "long": (pa.int64(), [2**63 - 1, -(2**63), 1588987262754234369]),
    "double": (pa.float64(), [0.1 + 0.2, 1e-300, -1.7976931348623157e308]),
    "decimal": (pa.decimal128(38, 2), [Decimal("123456789012345678901234567890123456.78"), Decimal("-0.01")]),
    "time": (
        TIME,
        [
            datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(2262, 4, 12, tzinfo=UTC),
        ],
    ),
    "date": (pa.date32(), [date(9999, 12, 31), date(1, 1, 1)]),
    "text": (pa.string(), ['\u2028 \U0001f600 \\ " / \n', ""]),
    "boolean": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("more", [[], [None]])
def test_a_row_is_read_again_as_it_was(kind: str, more: list[None]) -> None:
    """Beside a null, too: a column of whole numbers was one of doubles then."""
    type_, values = COLUMNS[kind]
    rows = pa.table({"k": ["a"] * len([*values, *more]), "v": pa.array([*values, *more], type_)})
    lines = "\n".join(text_of_rows(rows).to_pylist()).encode()
    columns = EventColumns("k", "k", None, None, ("v",), {"k": pa.string(), "v": type_})
    parts = list(decode(lines, "f.json", "json", columns))
    assert all(part.error is None or part.error.null_count == len(part.error) for part in parts)
    assert [value for part in parts for value in part.table["v"].to_pylist()] == [*values, *more]


def test_a_row_is_one_object_in_a_line() -> None:
    rows = pa.table({"t": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], TIME), "n": [7], "x": [math.inf]})
    (text,) = text_of_rows(rows).to_pylist()
    assert text == '{"t":"2026-01-01T00:00:00.000000Z","n":7,"x":Infinity}'
    assert json.loads(text)["n"] == 7
