"""Times and durations as a store takes them: whole numbers of its unit, aware datetimes, texts such as "7 days"."""

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.store.standalone.keys import LARGEST, LEAST

Unit = Literal["us", "ms", "s"]
Time = int | datetime
"""An int64 in the store's unit, or a datetime with a time zone."""
Duration = int | str
"""A whole number of the store's unit, or a text such as "7 days"."""
_MICROSECONDS: Final = {"us": 1, "ms": 1000, "s": 1_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000_000


@dataclass(frozen=True)
class Units:
    """A store's unit of time."""

    microseconds: int

    def time(self, value: Time) -> int:
        """Return a time in this unit; a datetime is rounded down to whole units.

        >>> units("s").time(datetime(1970, 1, 1, 0, 1, 2, 900_000, tzinfo=UTC))
        62

        Raises ValueError for a datetime without a time zone, for a value that is no time, and for a time that does not fit an int64.
        """
        if type(value) is not int:
            value = self._converted(value)
        if not LEAST <= value <= LARGEST:
            raise ValueError(f"time {value} does not fit an int64; give it in the store's unit")
        return value

    def _converted(self, value: Time) -> int:
        if isinstance(value, datetime):
            if value.utcoffset() is None:
                raise ValueError(f"time {value} has no time zone; add one, as in datetime(2026, 1, 31, tzinfo=UTC)")
            return (value - _EPOCH) // timedelta(microseconds=1) // self.microseconds
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ValueError(f"time {value!r} is neither a whole number nor a datetime with a time zone")
        return operator.index(value)

    def duration(self, value: Duration, name: str) -> int:
        """Return a positive duration in this unit; ValueError, which names the argument, for anything else.

        >>> units("ms").duration("2 minutes", "retention")
        120000
        """
        if isinstance(value, str):
            try:
                micros = parse_duration(value, name)
            except ConfigError as error:
                raise ValueError(str(error)) from None
            if micros % self.microseconds:
                raise ValueError(f"{name}: {value!r} is no whole number of the store's unit; choose unit = 'us'")
            value = micros // self.microseconds
        if type(value) is not int or not 0 < value <= LARGEST:
            raise ValueError(f"{name}: {value!r} must be more than zero, a whole number or a text such as '7 days'")
        return value

    @property
    def minute(self) -> int:
        """A minute in this unit."""
        return _MINUTE // self.microseconds


def units(name: Unit) -> Units:
    """Return a unit by its name; ValueError for an unknown name."""
    if name not in _MICROSECONDS:
        raise ValueError(f"unit: {name!r} is not one of 'us', 'ms', 's'")
    return Units(_MICROSECONDS[name])
