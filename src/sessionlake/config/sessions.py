"""The sections of a pipeline of sessions: [session] and [quarantine]."""

from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.quarantine import Quarantine, check_length, parse_rate
from sessionlake.config.sections import Duration, OperatorSection, Section
from sessionlake.errors import ConfigError


class SessionSection(OperatorSection):
    """The session windows."""

    gap: Duration
    grace: Duration = "0 seconds"
    retention: Duration | None = None
    beyond_retention: Literal["dead_letter", "drop", "emit"] = "dead_letter"
    emit: Literal["update", "final"] = "update"
    gap_by: str | None = None
    """SQL over the event: its own gap, null for `gap`."""
    max_gap: Duration | None = None
    """The largest that `gap_by` may give."""
    max_length: Duration | None = None
    """No session crosses a multiple of it, counted from 1970-01-01 UTC + `max_length_offset`."""
    max_length_offset: Duration = "0 seconds"

    @property
    def max_gap_us(self) -> int | None:
        """The largest gap of an event's own; None where all have `gap`."""
        return None if self.max_gap is None else parse_duration(self.max_gap)

    @property
    def max_length_us(self) -> int | None:
        """How long the cells are that sessions are cut into; None where they are not."""
        return None if self.max_length is None else parse_duration(self.max_length)

    @property
    def offset_us(self) -> int:
        """Where the cells begin, after 1970-01-01 UTC."""
        return parse_duration(self.max_length_offset)

    @property
    def widest_us(self) -> int:
        """The largest gap that any event has."""
        return self.max_gap_us or self.gap_us

    @property
    def gap_us(self) -> int:
        """Inactivity gap."""
        return parse_duration(self.gap)

    @property
    def grace_us(self) -> int:
        """Grace after session_end + gap."""
        return parse_duration(self.grace)

    @property
    def retention_us(self) -> int:
        """Retention; gap (max_gap) + grace where none is given."""
        return self.widest_us + self.grace_us if self.retention is None else parse_duration(self.retention)

    @property
    def harmless_us(self) -> int:
        """Gap + grace: so long a session of one event stays open."""
        return self.gap_us + self.grace_us

    @property
    def ends_inclusive(self) -> bool:
        """The end is the time of the last event."""
        return True

    @property
    def to_close_us(self) -> int:
        """Gap + grace."""
        return self.gap_us + self.grace_us

    def closing_sql(self, micros: str, end: str) -> str:
        """Return the end; where sessions are limited, `open_until` less the gap, which is as far from closing."""
        if self.max_gap_us is not None:
            return f"{micros.format('open_until')} - {self.gap_us}"
        time = micros.format(end)
        if self.max_length_us is None:
            return time
        # In SQL, unlike Python, the remainder of a negative number is negative.
        length = self.max_length_us
        into = f"((({time}) - {self.offset_us}) % {length} + {length}) % {length}"
        return f"least({time}, {time} - {into} + {length - 1 - self.gap_us})"

    @property
    def closes_late_us(self) -> int:
        """By a gap of an event's own, which may be wider."""
        return self.widest_us - self.gap_us

    @property
    def keeps_until(self) -> bool:
        """Whether events have gaps of their own."""
        return self.max_gap is not None

    @property
    def shown(self) -> Literal["all", "final", "marked"]:
        """All, or with emit = "final" those that are final."""
        return "final" if self.emit == "final" else "all"

    @property
    def removes_open(self) -> bool:
        """Any session can be removed."""
        return True

    def in_words(self) -> str:
        """Return what makes a session, and until when."""
        own = f" ({self.gap_by!r}, up to {self.max_gap})" if self.gap_by else ""
        cut = f", cut at multiples of {self.max_length}" if self.max_length else ""
        return (
            f"sessions of events at most {self.gap} apart{own}{cut}; events change a session until "
            f"{spoken_duration(self.grace_us)} after it could have gone on"
        )

    def check(self) -> None:
        """Refuse an empty gap, limits that don't go together, and a retention shorter than gap (max_gap) + grace."""
        if self.gap_us == 0:
            raise ConfigError(f"session.gap: {self.gap!r} must be longer than zero; write for example '30 minutes'")
        self._check_limits()
        needed = self.widest_us + self.grace_us
        if self.retention_us < needed:
            gap = "gap" if self.max_gap is None else "max_gap"
            raise ConfigError(
                f"session.retention: {self.retention!r} is shorter than {gap} + grace = {spoken_duration(needed)}; "
                f"write '{spoken_duration(needed)}' or longer"
            )

    def _check_limits(self) -> None:
        if self.gap_by is not None and self.max_gap is None:
            raise ConfigError("session.max_gap: is missing; gap_by needs it, write the largest gap it may give")
        if self.gap_by is None and self.max_gap is not None:
            raise ConfigError(f"session.max_gap: {self.max_gap!r} is for gap_by; write gap_by, or remove it")
        if self.max_gap_us is not None and self.max_gap_us < self.gap_us:
            raise ConfigError(
                f"session.max_gap: {self.max_gap!r} is shorter than the gap; write '{spoken_duration(self.gap_us)}' or longer"
            )
        if self.max_length is None and self.offset_us:
            raise ConfigError(
                f"session.max_length_offset: {self.max_length_offset!r} is for max_length; write max_length, or remove it"
            )
        if self.max_length_us is not None and self.max_length_us < self.widest_us:
            gap = "gap" if self.max_gap is None else "max_gap"
            raise ConfigError(
                f"session.max_length: {self.max_length!r} is shorter than {gap}; write '{spoken_duration(self.widest_us)}' or longer"
            )
        if self.max_length_us is not None and self.offset_us >= self.max_length_us:
            raise ConfigError(
                f"session.max_length_offset: {self.max_length_offset!r} must be shorter than max_length; write what is left of it"
            )

    @property
    def bound_in_time(self) -> bool:
        """All are durations."""
        return True

    def bound_settings(self) -> dict[str, Any]:
        """Return the gap, and the limits; those that are not set as null, which a pipeline of before has none of."""
        return {
            "session.gap": self.gap_us,
            "session.gap_by": self.gap_by,
            "session.max_gap": self.max_gap_us,
            "session.max_length": self.max_length_us,
            "session.max_length_offset": self.offset_us or None,
        }


class QuarantineSection(Section):
    """Which sessions are kept apart; above any of the thresholds."""

    max_events: int | None = Field(default=None, ge=1)
    max_rate: str | None = None
    """Events per minute, second or hour of a session's length, one minute at least."""
    max_length: Duration | None = None

    @property
    def thresholds(self) -> Quarantine:
        """The thresholds as numbers; ConfigError where a rate is none."""
        return Quarantine(
            self.max_events,
            None if self.max_rate is None else parse_rate(self.max_rate),
            None if self.max_length is None else parse_duration(self.max_length),
        )

    def settings(self) -> dict[str, Any]:
        """Return the thresholds as JSON values."""
        found = self.thresholds
        return {**asdict(found), "max_rate": found.max_rate and list(found.max_rate)}

    def check(self, session: SessionSection) -> None:
        """Refuse a section without a threshold, and one that no session can be above."""
        if self.thresholds == Quarantine():
            raise ConfigError("quarantine: has no threshold; write max_events, max_rate or max_length")
        check_length(self.thresholds.max_length_us, session.max_length_us)
