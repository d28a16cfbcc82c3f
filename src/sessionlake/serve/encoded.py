"""Rows as JSON, at most a page at a time."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import to_json

Times = Literal["iso", "us"]
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (UTC, whose text needs no offset)
_MINUTE_US = 60_000_000
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, which Python's times are of."""


def encoded(rows: pa.Table, times: Times) -> list[bytes]:
    """Return each row as JSON: times as ISO 8601 with microseconds, or as whole microseconds; bytes in base64, NaN as text."""
    columns = [plain(column, times) for column in rows.columns]
    return [row_json(row) for row in pa.table(columns, names=rows.column_names).to_pylist()]


def row_json(row: Mapping[str, Any]) -> bytes:
    """Return a row of plain values as JSON: bytes in base64, NaN as text."""
    return to_json(row, inf_nan_mode="strings", bytes_mode="base64")


def within(rows: Sequence[bytes], most: int) -> int:
    """Return how many of the rows, from the first on, have `most` bytes together: at least one, if there is any.

    For example a limit of 5 bytes takes two rows, and a limit of 1 byte still takes one:

    >>> within([b"{}", b"{1}", b"{}"], 5), within([b"{}", b"{1}"], 1)
    (2, 1)
    """
    return max(sum(total <= most for total in accumulate(map(len, rows))), min(len(rows), 1))


def time_value(time_us: int | None, times: Times) -> str | int | None:
    """Return a time in the form of answers: ISO 8601 text, or the same microseconds.

    >>> time_value(1_500_000, "iso"), time_value(1_500_000, "us")
    ('1970-01-01T00:00:01.500000Z', 1500000)
    """
    if time_us is None or times == "us":
        return time_us
    if not _FIRST_US <= time_us <= _LAST_US:
        return str(pc.strftime(pa.scalar(time_us, pa.timestamp("us")), format=_FORMAT))
    minute, rest = divmod(time_us, _MINUTE_US)
    digits = str(rest + 100_000_000)  # eight of them with their zeros, in half of the time that a format takes
    return f"{_minute(minute)}{digits[1:3]}.{digits[3:]}Z"


@lru_cache(4096)
def _minute(number: int) -> str:
    """Return the text of a minute up to its seconds. The cache helps because the times of answers lie in a few days."""
    return (_EPOCH + timedelta(minutes=number)).isoformat()[:-2]


def joined(rows: Sequence[bytes]) -> bytes:
    """Return a JSON list of rows that are JSON already.

    >>> joined([b'{"a":1}', b'{"a":2}'])
    b'[{"a":1},{"a":2}]'
    """
    return b"[" + b",".join(rows) + b"]"


def envelope(head: bytes, name: str, rows: bytes, cursor: str | None = None) -> bytes:
    """Return a JSON object with the fields of another one, with `rows`, which are JSON too, under a name, and with the cursor."""
    return b"%b,%b:%b,%b:%b}" % (head[:-1], to_json(name), rows, b'"cursor"', to_json(cursor))


def plain(column: pa.Array | pa.ChunkedArray, times: Times) -> pa.Array | pa.ChunkedArray:
    """Return a column in the form of answers: times as text or as whole microseconds, other types unchanged."""
    if not pa.types.is_timestamp(column.type):
        return column
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if times == "us":
        return micros
    return pc.strftime(micros.cast(pa.timestamp("us")), format=_FORMAT)
