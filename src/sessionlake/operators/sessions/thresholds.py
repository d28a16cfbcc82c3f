"""`[quarantine]`: which sessions are kept apart, as a pure function of their events' number and times (docs/rules.md, rule 162).

Thresholds do not change results: sessions in quarantine are stored and logged as any other, and the views leave them out.
"""

import re
from dataclasses import dataclass

from sessionlake.config.durations import format_duration
from sessionlake.errors import ConfigError

_MINUTE_US = 60_000_000
_PER = {"second": 1_000_000, "minute": _MINUTE_US, "hour": 60 * _MINUTE_US}
_RATE = re.compile(r"([0-9][0-9_]*) per (second|minute|hour)")
RULE, RATE = "rule", "events_per_minute"
"""Columns of the view of sessions in quarantine."""


@dataclass(frozen=True)
class Quarantine:
    """The thresholds; a session above any of them is in quarantine, one exactly at it is not. Durations in microseconds."""

    max_events: int | None = None
    max_rate: tuple[int, int] | None = None
    """A rate: a number of events in a number of microseconds, for example 100 events in 60,000,000 microseconds."""
    max_length_us: int | None = None

    def rule_sql(self, micros: str) -> str:
        """Return the name of the threshold that a session's row is above, null if of none, as SQL of Spark and DuckDB.

        `micros` makes whole microseconds of a time, as `unix_micros({})`.
        """
        length = _length(micros)
        arms = []
        if self.max_events is not None:
            arms.append(f"when event_count > {self.max_events} then 'max_events'")
        if self.max_rate is not None:
            events, per_us = self.max_rate
            # Doubles, as in the batches' counts: whole numbers could be too large for 64 bits.
            arms.append(
                f"when event_count * {per_us}e0 > {events}e0 * greatest({length}, {_MINUTE_US}) then 'max_rate'"
            )
        if self.max_length_us is not None:
            arms.append(f"when {length} > {self.max_length_us} then 'max_length'")
        return f"(case {' '.join(arms)} end)"


def rate_sql(micros: str) -> str:
    """Return a session's events per minute of its length, one minute at least."""
    return f"(event_count * {_MINUTE_US}e0 / greatest({_length(micros)}, {_MINUTE_US}))"


def _length(micros: str) -> str:
    return f"({micros.format('session_end')} - {micros.format('session_start')})"


def parse_rate(text: str) -> tuple[int, int]:
    """Return the events and the microseconds of a text such as "600 per minute"; ConfigError in one line."""
    found = _RATE.fullmatch(text.strip())
    if found is None or int(found[1]) < 1:
        raise ConfigError(f"quarantine.max_rate: {text!r} is no rate; write for example '600 per minute'")
    if int(found[1]) > 1_000_000_000:
        raise ConfigError(f"quarantine.max_rate: {text!r} is more than a billion; write a smaller one, or none")
    return int(found[1]), _PER[found[2]]


def check_length(length_us: int | None, most_us: int | None) -> None:
    """Refuse a threshold that no session can be above: one that is as long as the cells that sessions are cut into."""
    if length_us is not None and most_us is not None and length_us >= most_us:
        raise ConfigError(
            f"quarantine.max_length: {format_duration(length_us)!r} is reached by no session, since session.max_length is "
            f"'{format_duration(most_us)}'; write a shorter one"
        )
