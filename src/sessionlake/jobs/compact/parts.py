"""What the snapshot's rows are laid out by, as texts that sort as it does: dates, or of rows by count the parts of their numbers."""

from datetime import date

from sessionlake.warehouse.changelog import Changelog

_OFFSET = 1 << 62


def text_of(value: date | int) -> str:
    """Return a date as ISO text, a part as 19 digits."""
    return f"{value + _OFFSET:019d}" if isinstance(value, int) else value.isoformat()


def value_of(text: str) -> date | int:
    """Invert `text_of`."""
    return date.fromisoformat(text) if "-" in text else int(text) - _OFFSET


def place_of(text: str) -> int:
    """Return a number that grows by one from a date or part to the next."""
    value = value_of(text)
    return value if isinstance(value, int) else value.toordinal()


def stored_text(of: Changelog, bound: str) -> str:
    """Return what a table's log has as a text of a date or part, as `text_of` makes it."""
    return text_of(int(bound)) if of.numbered_parts else bound


def every(of: Changelog) -> tuple[str, str]:
    """Return the first and the last of all."""
    return (text_of(-_OFFSET), text_of(_OFFSET)) if of.numbered_parts else ("0001-01-01", "9999-12-31")


def as_sql(text: str) -> str:
    """Return what a text stands for as a literal of Spark's SQL."""
    value = value_of(text)
    return f"{value}L" if isinstance(value, int) else f"date'{text}'"


def sql_type(of: Changelog) -> str:
    """Return the column's type as Spark's SQL has it."""
    return "long" if of.numbered_parts else "date"
