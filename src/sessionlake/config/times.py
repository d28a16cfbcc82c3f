"""Points in time as users write them."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from sessionlake.errors import ConfigError


def parse_time(text: str, name: str = "time") -> int:
    """Return an ISO date (its midnight) or time as microseconds since the epoch; naive ones are UTC.

    >>> parse_time("1970-01-02"), parse_time("1970-01-01T01:00:00+01:00")
    (86400000000, 0)
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(f"{name}: {text!r} is no ISO date or time; write for example '2026-01-31'") from error
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def format_time(time_us: int) -> str:
    """Return microseconds since the epoch as ISO text in UTC.

    >>> format_time(86_400_000_000)
    '1970-01-02T00:00:00+00:00'
    """
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()


def _as_text(given: object) -> object:
    if isinstance(given, time):
        raise ValueError(f"'{given}' has no date; write for example 2026-01-31T12:00:00Z")  # noqa: TRY004 (pydantic's)
    return given.isoformat() if isinstance(given, date) else given


def _moment(text: str) -> str:
    try:
        return format_time(parse_time(text))
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("time: ")) from error


Moment = Annotated[str, BeforeValidator(_as_text), AfterValidator(_moment)]
"""A point in time in a config: a date or time of TOML, or a text as `parse_time` takes it. ISO text in UTC once it is read."""
