"""Times in texts of a format in Spark's letters, as `to_timestamp` reads them in UTC: the same SQL reads both."""

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from sessionlake.columnar.datetime_letters import LettersError, parts_of, read


@dataclass(frozen=True)
class TimeFormat:
    """A format of times.

    >>> TimeFormat("dd/MMM/yyyy:HH:mm:ss Z").parse(pa.array(["01/Jan/1970:01:00:01 +0100", "now"])).to_pylist()
    [1000000, None]
    """

    text: str
    """Letters as in Spark's `to_timestamp`; a letter that is none stands in single quotes, and `''` is a quote."""

    def check(self) -> None:
        """Raise LettersError, a ValueError in words, for letters that are not read, or a format without a date."""
        _sql(self.text)

    def parse(self, texts: pa.Array) -> pa.Array:
        """Return UTC microseconds since 1970, null for other texts; times without a zone are UTC."""
        from sessionlake.columnar.expressions import computed  # noqa: PLC0415 (configs are checked without it)

        return computed(_sql(self.text), texts)


@cache
def _sql(text: str) -> str:
    letters = {part.text[0] for part in parts_of(text) if part.is_letters}
    if "h" in letters and "a" not in letters:
        # Spark takes all such hours for those of the morning.
        raise LettersError("has an hour of 12 without AM or PM; write hh:mm a, or HH:mm")
    return f"epoch_us({read(text, ('year', 'month', 'day')).format('c0')})"
