"""The values by which the snapshot's files are laid out, as texts in the same order: dates, or for windows by count ranges of message numbers."""

from datetime import date

from sessionlake.warehouse.changelog import Changelog

_OFFSET = 1 << 62


def text_of(value: date | int) -> str:
    """Return a date as ISO text, a part as 19 digits.

    >>> text_of(date(2026, 1, 31)), text_of(-1) < text_of(0) < text_of(1)
    ('2026-01-31', True)
    """
    return f"{value + _OFFSET:019d}" if isinstance(value, int) else value.isoformat()


def value_of(text: str) -> date | int:
    """Invert `text_of`."""
    return date.fromisoformat(text) if "-" in text else int(text) - _OFFSET


def place_of(text: str) -> int:
    """Return a number that grows by one from a date or part to the next.

    >>> place_of("2026-02-01") - place_of("2026-01-31")
    1
    """
    value = value_of(text)
    return value if isinstance(value, int) else value.toordinal()


def stored_text(of: Changelog, bound: str) -> str:
    """Return a date or part from a table's log in the form of `text_of`."""
    return text_of(int(bound)) if of.numbered_parts else bound


def every(of: Changelog) -> tuple[str, str]:
    """Return the first and the last of all."""
    return (text_of(-_OFFSET), text_of(_OFFSET)) if of.numbered_parts else ("0001-01-01", "9999-12-31")


def as_sql(text: str) -> str:
    """Return a text's value as a literal of Spark's SQL.

    >>> as_sql("2026-01-31"), as_sql(text_of(7))
    ("date'2026-01-31'", '7L')
    """
    value = value_of(text)
    return f"{value}L" if isinstance(value, int) else f"date'{text}'"


def sql_type(of: Changelog) -> str:
    """Return the column's type as Spark's SQL has it."""
    return "long" if of.numbered_parts else "date"
