"""The dialects of SQL for queries over tables, and the only place that quotes names and texts in each."""

from dataclasses import dataclass

DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Dialect:
    """The differences between the SQL of Spark and of DuckDB."""

    quote: str
    date: str
    """The UTC date of a column, whatever the session's time zone."""
    micros: str
    """A time in whole microseconds since 1970."""
    by_id: bool = False
    """Whether key and id name a row, and not key and start or numbers."""
    rounding_us: int = 0
    """By how much times may be off."""
    key_part: str = "json_extract_string({}, '$[{}]')"
    """The text at a place of a key of several columns."""
    unnest: str = "unnest({})"
    """A row for each element of an array, as a column of a query."""
    escapes: bool = False
    """Whether a backslash in a text begins an escape."""

    def named(self, name: str) -> str:
        """Return a name as SQL quotes it."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def text(self, value: str) -> str:
        r"""Return a text as a literal of SQL.

        >>> SPARK.text("it's"), DUCKDB.text("it's")
        ("'it\\'s'", "'it''s'")
        """
        if self.escapes:
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return "'" + value.replace("'", "''") + "'"


SPARK = Dialect(
    "`",
    # Whole days, so that no rounding moves a date.
    f"date_from_unix_date(cast((unix_micros({{0}}) - pmod(unix_micros({{0}}), {DAY_US})) / {DAY_US} as int))",
    "unix_micros({})",
    key_part="get_json_object({}, '$[{}]')",
    unnest="explode({})",
    escapes=True,
)
DUCKDB = Dialect('"', "cast({} at time zone 'UTC' as date)", "epoch_us({})")
TRINO = Dialect(
    DUCKDB.quote,
    DUCKDB.date,
    "cast(to_unixtime({}) * 1e6 as bigint)",
    by_id=True,
    rounding_us=1000,
    key_part="json_extract_scalar({}, '$[{}]')",
)
"""Trino reads Delta's times to the millisecond, in which two starts of a key may fall: the id is a hash of the exact start."""
