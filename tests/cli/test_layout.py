"""Tables of text: whole values in columns where they fit, shorter times and ids, or rows on their sides."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sessionlake.cli.layout import cell, laid_out, plain

AT = datetime(2026, 1, 31, 12, 0, 0, 120_000, tzinfo=UTC)


def table(columns: list[str], rows: list[list[Any]], width: int | None = None) -> list[str]:
    return laid_out(columns, rows, width)[0].plain.splitlines()


def test_numbers_stand_right_and_texts_left() -> None:
    assert table(["n", "text", "x"], [[1, "a", 0.5], [1234, None, None]]) == [
        "   n  text    x",
        "   1  a     0.5",
        "1234",
    ]


def test_a_terminal_has_a_rule_below_the_names() -> None:
    assert table(["n", "text"], [[1, "a"]], 80) == ["n  text", "─  ────", "1  a"]


def test_times_and_ids_are_cut_before_a_row_is_turned() -> None:
    columns, rows = ["session_id", "start"], [[-8369453025934625850, AT]]
    whole = "-8369453025934625850  2026-01-31 12:00:00.120"
    assert table(columns, rows, len(whole))[2] == whole
    lines, notes = laid_out(columns, rows, len(whole) - 1)
    assert lines.plain.splitlines()[2] == " -8369453…  2026-01-31 12:00:00"
    assert notes == ["times to the second, ids cut; --format json has them in full"]


def test_a_row_that_does_not_fit_stands_on_its_side_in_full() -> None:
    assert table(["session_id", "start"], [[-8369453025934625850, AT], [7, None]], 20) == [
        "── row 1 ───────────",
        "session_id  -8369453025934625850",
        "start       2026-01-31 12:00:00.120",
        "── row 2 ───────────",
        "session_id  7",
        "start",
    ]


def test_without_a_width_nothing_is_turned() -> None:
    assert table(["a", "b"], [["x" * 500, 1]])[1] == f"{'x' * 500}  1"


def test_bytes_are_left_out_unless_there_is_nothing_else() -> None:
    told, notes = laid_out(["key", "state"], [["a", b"123"]], 80)
    assert told.plain.splitlines() == ["key", "───", "a"]
    assert notes == ["left out, since it is bytes: state; --format json has it in base64"]
    assert table(["state"], [[b"123"]]) == ["state", "<3 bytes>"]


def test_lines_of_a_text_stay_lines() -> None:
    assert table(["plan", "n"], [["a\nbcd", 1]]) == ["plan  n", "a     1", "bcd"]


texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)


@given(
    st.lists(st.lists(texts | st.integers() | st.none(), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(10, 100),
)
def test_every_value_is_there_whole(rows: list[list[Any]], width: int) -> None:
    told = laid_out(["a", "b", "c"], rows, width)[0].plain
    for row in rows:
        for value in row:
            assert all(line.rstrip(" ") in told for line in cell(value).split("\n"))
    lines = told.split("\n")
    if not lines[0].startswith("── row"):
        assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(
    ("value", "shown", "json"),
    [
        (None, "", None),
        (True, "true", True),
        (0.1 + 0.2, "0.3", 0.30000000000000004),
        (544921.2000000001, "544921.2", 544921.2000000001),
        (1234567890.12, "1234567890.12", 1234567890.12),
        (float("nan"), "nan", "nan"),
        (Decimal("1.50"), "1.50", 1.5),
        (Decimal(1 << 70), str(1 << 70), 1 << 70),
        (datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))), "2026-01-31 12:00:00", "2026-01-31T12:00:00+00:00"),
        (AT + timedelta(microseconds=1), "2026-01-31 12:00:00.120001", "2026-01-31T12:00:00.120001+00:00"),
        (datetime(2026, 1, 31), "2026-01-31 00:00:00", "2026-01-31T00:00:00"),  # noqa: DTZ001 (one without a zone)
        (AT.date(), "2026-01-31", "2026-01-31"),
        (timedelta(days=1), "1 day, 0:00:00", "1 day, 0:00:00"),
        (["a", AT.date()], '["a", "2026-01-31"]', ["a", "2026-01-31"]),
        ({"a": b"x"}, '{"a": "eA=="}', {"a": "eA=="}),
        ("\x1b[31mred\x07\t", "\\x1b[31mred\\x07\\t", "\x1b[31mred\x07\t"),
    ],
)  # fmt: skip
def test_values(value: Any, shown: str, json: Any) -> None:
    assert (cell(value), plain(value)) == (shown, json)
