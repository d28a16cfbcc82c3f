"""Rows and times as JSON, at the bounds of a page and of Python's years."""

import pytest

from sessionlake.serve.encoded import time_value, within


@pytest.mark.parametrize(("most", "rows"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_page_has_rows_of_as_many_bytes_and_one_at_least(most: int, rows: int) -> None:
    assert (within([b"12", b"345", b"6789"], most), within([], most)) == (rows, 0)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "10000-01-01T00:00:00.000000Z"),
        (None, None),
    ],
)
def test_a_moment_has_microseconds_in_any_year(time_us: int | None, text: str | None) -> None:
    assert (time_value(time_us, "iso"), time_value(time_us, "us")) == (text, time_us)
