"""Rows as JSON: a page at the most at a time."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import to_json

from sessionlake.config.times import format_time

Times = Literal["iso", "us"]


def encoded(rows: pa.Table, times: Times) -> list[bytes]:
    """Return each row as JSON: times as ISO 8601 with microseconds, or as whole microseconds; bytes in base64, NaN as text."""
    columns = [_plain(column, times) for column in rows.columns]
    plain = pa.table(columns, names=rows.column_names)
    return [to_json(row, inf_nan_mode="strings", bytes_mode="base64") for row in plain.to_pylist()]


def within(rows: Sequence[bytes], most: int) -> int:
    """Return how many of the rows, from the first on, have `most` bytes together: one at least, where there is one."""
    return max(sum(total <= most for total in accumulate(map(len, rows))), min(len(rows), 1))


def moment(time_us: int | None, times: Times) -> str | int | None:
    """Return a time as answers have it."""
    if time_us is None or times == "us":
        return time_us
    text = format_time(time_us).removesuffix("+00:00")
    return f"{text}{'' if '.' in text else '.000000'}Z"


def joined(rows: Sequence[bytes]) -> bytes:
    """Return a JSON list of what is JSON already."""
    return b"[" + b",".join(rows) + b"]"


def envelope(fields: dict[str, Any], name: str, rows: bytes, cursor: str | None = None) -> bytes:
    """Return fields as a JSON object that also has `rows`, which are JSON already, under a name, and the cursor."""
    head = to_json(fields).removesuffix(b"}")
    return b"%b,%b:%b,%b:%b}" % (head, to_json(name), rows, b'"cursor"', to_json(cursor))


def _plain(column: pa.ChunkedArray, times: Times) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(column.type):
        return column
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if times == "us":
        return micros
    return pc.strftime(micros.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ")
