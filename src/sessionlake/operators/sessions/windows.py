"""Session windows: gap, grace, retention and limits, and the bounds that a watermark gives them (docs/rules.md, "Words")."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sessionlake.columnar.arrays import Ints
from sessionlake.config.durations import format_duration, parse_duration, spoken_duration
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    # Workers unpickle windows, and have no config: pydantic stays out of them.
    from sessionlake.config.load import Config


@dataclass(frozen=True)
class Bounds:
    """The times that decide about a micro-batch, in microseconds; all follow from the previous batch's watermark.

    They are the same for all rows and shards of a batch, so that no order within it can matter.
    """

    open_us: int
    """A merged session whose `open_until` lies strictly before it is late, unless a correction is part of it (docs/rules.md, rule 5)."""
    close_us: int
    """What a late event's session ended strictly before, as late_events shows it."""
    expired_us: int
    """An event strictly before it is beyond retention (docs/rules.md, rule 3); a stored session whose `open_until` lies
    strictly before it is cold: absent, but for replacements (docs/rules.md, rule 7)."""
    oldest_end_us: int
    """A session that ends strictly before it is cold, whatever its gap: stores drop such ones by whole segments."""


@dataclass(frozen=True)
class SessionWindows:
    """Define session windows; all durations in microseconds.

    Two intervals of a key belong together when their distance is at most the gap (exactly the gap merges, as in
    Kafka Streams and unlike Spark's session_window). See KIP-94 for gap and retention, KIP-328 for grace.

    An interval is *open until* the last time at which a later one still joins it: its end + gap, or the last microsecond of
    its cell where there is a `max_length`, whichever is earlier (docs/rules.md, rules 160 and 161). Where each event has a
    gap of its own it is the largest of its events', and is kept with the interval.
    """

    gap_us: int
    grace_us: int = 0
    retention_us: int | None = None
    max_gap_us: int | None = None
    """The largest gap that an event of its own may have; None where all have `gap_us`."""
    max_length_us: int | None = None
    """Sessions don't cross multiples of it, counted from 1970-01-01 UTC + `offset_us`."""
    offset_us: int = 0
    gap_by: str | None = None
    """SQL of each event's own gap."""

    def __post_init__(self) -> None:
        if self.gap_us <= 0:
            raise ConfigError("session.gap: 0 must be longer; write '1 microsecond' or more")
        gap = "gap" if self.max_gap_us is None else "max_gap"
        if self.max_gap_us is not None and self.max_gap_us < self.gap_us:
            raise ConfigError(
                f"session.max_gap: {format_duration(self.max_gap_us)!r} is shorter than the gap; write {spoken_duration(self.gap_us)!r} or more"
            )
        if self.max_length_us is not None and self.max_length_us < self.widest_us:
            raise ConfigError(
                f"session.max_length: {format_duration(self.max_length_us)!r} is shorter than {gap}; write {spoken_duration(self.widest_us)!r} or more"
            )
        if self.retention_us is not None and self.retention_us < self.widest_us + self.grace_us:
            needed = format_duration(self.widest_us + self.grace_us)
            raise ConfigError(
                f"session.retention: {format_duration(self.retention_us)!r} is shorter than {gap} + grace = {needed!r}; "
                f"write at least {spoken_duration(self.widest_us + self.grace_us)!r}"
            )

    @classmethod
    def with_gap(cls, gap: str) -> "SessionWindows":
        """Start a definition with an inactivity gap such as "30 minutes"; no grace, retention gap + grace."""
        return cls(parse_duration(gap, "session.gap"))

    def grace(self, grace: str) -> "SessionWindows":
        """Accept changes to a session until the watermark passes session_end + gap + grace."""
        return replace(self, grace_us=parse_duration(grace, "session.grace"))

    def until(self, retention: str) -> "SessionWindows":
        """Keep sessions in the store for this long; at least gap + grace."""
        return replace(self, retention_us=parse_duration(retention, "session.retention"))

    def max_length(self, length: str, offset: str = "0 seconds") -> "SessionWindows":
        """Cut sessions at multiples of a length, counted from 1970-01-01 UTC + the offset: none crosses one."""
        return replace(
            self,
            max_length_us=parse_duration(length, "session.max_length"),
            offset_us=parse_duration(offset, "session.max_length_offset"),
        )

    def by(self, gap_by: str, max_gap: str) -> "SessionWindows":
        """Give each event a gap of its own, by SQL over it (docs/expressions.md); null is the gap, `max_gap` the most."""
        return replace(self, gap_by=gap_by, max_gap_us=parse_duration(max_gap, "session.max_gap"))

    @classmethod
    def of(cls, config: "Config") -> "SessionWindows":
        """Return a pipeline's windows."""
        section = config.sessions
        return cls(
            section.gap_us,
            section.grace_us,
            section.retention_us,
            section.max_gap_us,
            section.max_length_us,
            section.offset_us,
            section.gap_by,
        )

    @property
    def widest_us(self) -> int:
        """The largest gap that any event has."""
        return self.gap_us if self.max_gap_us is None else self.max_gap_us

    @property
    def keeps_until(self) -> bool:
        """Whether an interval's `open_until` does not follow from its end, and so is kept with it."""
        return self.max_gap_us is not None

    @property
    def limited(self) -> bool:
        """Whether `open_until` is anything but the end + gap."""
        return self.keeps_until or self.max_length_us is not None

    @property
    def to_close_us(self) -> int:
        """How far after its end a session closes at the latest: then the watermark lies more than this beyond the end."""
        return self.widest_us + self.grace_us

    @property
    def kept_us(self) -> int:
        """Retention, which is gap (max_gap) + grace where none was given."""
        return self.to_close_us if self.retention_us is None else self.retention_us

    def open_until(self, time_us: Ints, gap_us: Ints | None = None) -> Ints:
        """Return until when events at these times are open, and intervals that end there; by gaps of their own, where given."""
        until = time_us + (self.gap_us if gap_us is None else gap_us)
        return until if self.max_length_us is None else np.minimum(until, self._cut_after(time_us) - 1)

    def cells(self, time_us: Ints) -> Ints:
        """Return the number of the cell that each time is in; of one cell all where sessions have no `max_length`."""
        if self.max_length_us is None:
            return np.zeros(len(time_us), np.int64)
        return (time_us - self.offset_us) // self.max_length_us

    def _cut_after(self, time_us: Ints) -> Ints:
        assert self.max_length_us is not None  # noqa: S101 (asked of windows with one)
        return (self.cells(time_us) + 1) * self.max_length_us + self.offset_us

    def bounds(self, watermark_us: int) -> Bounds:
        """Return the bounds that hold during a micro-batch whose predecessor left this watermark."""
        # Stored sessions are kept a gap beyond retention's end: the oldest event that is accepted still finds a neighbour.
        expired_us = watermark_us - self.kept_us
        open_us = watermark_us - self.grace_us
        return Bounds(
            open_us=open_us,
            close_us=open_us if self.limited else open_us - self.gap_us,
            expired_us=expired_us,
            oldest_end_us=expired_us - self.widest_us,
        )
