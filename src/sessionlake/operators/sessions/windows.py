"""Session windows: gap, grace, retention and limits, and the bounds that a watermark gives them (docs/rules.md, "Words")."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sessionlake.columnar.arrays import Ints
from sessionlake.config.durations import format_duration, parse_duration, spoken_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.windowing.emission import KEPT, Progress
from sessionlake.stream.watermark import watermark_of

if TYPE_CHECKING:
    # Workers unpickle windows, and have no config: pydantic stays out of them.
    from sessionlake.config.load import Config
    from sessionlake.operators.sessions.section import SessionSection


NO_END = int(np.iinfo(np.int64).max)
"""The end of a cell that has none."""
NOT_WRITTEN = -1
"""Stands for a grace that follows from the retention."""


@dataclass(frozen=True)
class Earlier:
    """The gap and the limit of sessions that held for events before a time; microseconds."""

    until_us: int
    """The event time from which on they hold no more. No session crosses it (docs/rules.md, rule 244)."""
    gap_us: int
    max_length_us: int | None = None
    offset_us: int = 0


@dataclass(frozen=True)
class Bounds:
    """The times that decide about a micro-batch, in microseconds; all follow from the previous batch's watermark.

    They are the same for all rows and shards of a batch, so that no order within it can matter.
    """

    open_us: int
    """A merged session whose `open_until` lies strictly before it is late, unless a correction is part of it (docs/rules.md, rule 5)."""
    close_us: int
    """The session of a late event ended strictly before this time; late_events shows it."""
    expired_us: int
    """An event strictly before it is beyond retention (docs/rules.md, rule 3); a stored session whose `open_until` lies
    strictly before it is cold: it counts as missing, except for replacements (docs/rules.md, rule 7)."""
    oldest_end_us: int
    """A session that ends strictly before it is cold with any gap. Stores drop such sessions by whole segments."""


@dataclass(frozen=True)
class SessionWindows:
    """Session windows: gap, grace, retention and limits. All durations are microseconds.

    >>> windows = SessionWindows.with_gap("30 minutes").grace("1 day").until("7 days")
    >>> windows.gap_us, windows.grace_us, windows.retention_us
    (1800000000, 86400000000, 604800000000)

    Two intervals of a key belong together when their distance is at most the gap (exactly the gap merges, as in
    Kafka Streams and unlike Spark's session_window). See KIP-94 for gap and retention, KIP-328 for grace.

    An interval is *open until* the last time at which a later one still joins it: its end + gap, or the last microsecond of
    its cell, the earlier one (docs/rules.md, rules 160 and 161). Cells end at the multiples of a `max_length`, and at each time
    from which on another gap holds (rule 244). If each event has its own gap, an interval is open until the latest such time of
    its events; that time is kept with the interval.
    """

    gap_us: int
    grace_us: int = NOT_WRITTEN
    """Without one it is what the retention leaves: retention - gap (max_gap); 0 if there is no retention either."""
    retention_us: int | None = None
    max_gap_us: int | None = None
    """The largest gap that an event may have by `gap_by`; None if all events have `gap_us`."""
    max_length_us: int | None = None
    """Sessions don't cross multiples of it, counted from 1970-01-01 UTC + `offset_us`."""
    offset_us: int = 0
    gap_by: str | None = None
    """SQL over an event that gives its gap; None if all events have `gap_us`."""
    before: tuple[Earlier, ...] = ()
    """The gaps and limits that held for earlier event times, the earliest first."""
    _graced: bool = field(init=False, repr=False, compare=False)
    """Whether the grace is written, and so stays if the retention changes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_graced", self.grace_us != NOT_WRITTEN)
        if not self._graced:
            left = 0 if self.retention_us is None else max(0, self.retention_us - self.widest_us)
            object.__setattr__(self, "grace_us", left)
        if self.gap_us <= 0:
            raise ConfigError("session.gap: 0 must be longer; write '1 microsecond' or more")
        gap = "gap" if self.max_gap_us is None else "max_gap"
        if self.max_gap_us is not None and self.max_gap_us < self.gap_us:
            raise ConfigError(
                f"session.max_gap: {format_duration(self.max_gap_us)!r} is shorter than the gap; write {spoken_duration(self.gap_us)!r} or more"
            )
        widest = self.gap_us if self.max_gap_us is None else self.max_gap_us
        if self.max_length_us is not None and self.max_length_us < widest:
            raise ConfigError(
                f"session.max_length: {format_duration(self.max_length_us)!r} is shorter than {gap}; write {spoken_duration(widest)!r} or more"
            )
        # A batch may have had an earlier gap, and a retention that goes with it alone.
        narrowest = min([widest, *(earlier.gap_us for earlier in self.before)])
        if self.retention_us is not None and self.retention_us < narrowest + self.grace_us:
            needed = format_duration(narrowest + self.grace_us)
            raise ConfigError(
                f"session.retention: {format_duration(self.retention_us)!r} is shorter than {gap} + grace = {needed!r}; "
                f"write at least {spoken_duration(narrowest + self.grace_us)!r}"
            )

    @classmethod
    def with_gap(cls, gap: str) -> "SessionWindows":
        """Return windows with an inactivity gap, for example "30 minutes". Until they get one they have no grace, and the retention is gap + grace.

        >>> SessionWindows.with_gap("30 minutes").gap_us
        1800000000
        """
        return cls(parse_duration(gap, "session.gap"))

    def grace(self, grace: str) -> "SessionWindows":
        """Return these windows with a grace: a session changes until the watermark passes session_end + gap + grace.

        >>> SessionWindows.with_gap("30 minutes").grace("1 hour").to_close_us
        5400000000
        """
        return replace(self, grace_us=parse_duration(grace, "session.grace"))

    def until(self, retention: str) -> "SessionWindows":
        """Return these windows with a retention: how long stores keep sessions; at least gap + grace.

        Without a grace of their own, sessions change as long as they are kept: the grace is retention - gap (KIP-94).

        >>> windows = SessionWindows.with_gap("30 minutes").until("1 hour")
        >>> windows.retention_us, windows.grace_us
        (3600000000, 1800000000)
        """
        return self._with(retention_us=parse_duration(retention, "session.retention"))

    def max_length(self, length: str, offset: str = "0 seconds") -> "SessionWindows":
        """Return these windows, cut at multiples of a length that are counted from 1970-01-01 UTC + the offset.

        No session crosses such a multiple.

        >>> SessionWindows.with_gap("30 minutes").max_length("1 day").max_length_us
        86400000000
        """
        return self._with(
            max_length_us=parse_duration(length, "session.max_length"),
            offset_us=parse_duration(offset, "session.max_length_offset"),
        )

    def by(self, gap_by: str, max_gap: str) -> "SessionWindows":
        """Return these windows with an own gap for each event: SQL over the event (docs/expressions.md).

        If the SQL gives null the event has the common gap. No gap may be longer than `max_gap`.

        >>> own = SessionWindows.with_gap("30 minutes").by("if(app = 'tv', interval 4 hours, null)", "4 hours")
        >>> own.widest_us
        14400000000
        """
        return self._with(gap_by=gap_by, max_gap_us=parse_duration(max_gap, "session.max_gap"))

    def _with(self, **changes: Any) -> "SessionWindows":
        return replace(self, **{"grace_us": self.grace_us if self._graced else NOT_WRITTEN, **changes})

    @classmethod
    def of(cls, config: "Config") -> "SessionWindows":
        """Return a pipeline's windows."""
        section = cast("SessionSection", config.section)
        return cls(
            section.gap_us,
            section.grace_us,
            section.retention_us,
            section.max_gap_us,
            section.max_length_us,
            section.offset_us,
            section.gap_by,
            tuple(Earlier(*earlier.bound) for earlier in section.before),
        )

    @property
    def widest_us(self) -> int:
        """The largest gap that any event has."""
        now = self.gap_us if self.max_gap_us is None else self.max_gap_us
        return max([now, *(earlier.gap_us for earlier in self.before)])

    @property
    def skew_us(self) -> int:
        """How far ahead of the clock events may be if nothing else is said: the grace, or the gap if no grace is written."""
        return self.grace_us if self._graced else self.gap_us

    @property
    def keeps_until(self) -> bool:
        """Whether an interval's `open_until` does not follow from its end, and so is kept with it."""
        return self.max_gap_us is not None

    @property
    def cut(self) -> bool:
        """Whether there are times that no session crosses."""
        return self.max_length_us is not None or bool(self.before)

    @property
    def limited(self) -> bool:
        """Whether `open_until` is anything but the end + gap."""
        return self.keeps_until or self.cut

    @property
    def to_close_us(self) -> int:
        """The longest time after its end at which a session closes: the watermark lies more than this after the end."""
        return self.widest_us + self.grace_us

    @property
    def kept_us(self) -> int:
        """Retention, which is gap (max_gap) + grace if none was given."""
        return self.to_close_us if self.retention_us is None else self.retention_us

    def open_until(self, time_us: Ints, gap_us: Ints | None = None) -> Ints:
        """Return until when events at these times are open, and intervals that end there; `gap_us` are their own gaps.

        >>> SessionWindows.with_gap("1 second").open_until(np.array([0, 5])).tolist()
        [1000000, 1000005]
        """
        gaps = self._by_time(self.gap_us, (earlier.gap_us for earlier in self.before), time_us)
        until = time_us + (gaps if gap_us is None else gap_us)
        return np.minimum(until, self.cell_ends(time_us) - 1) if self.cut else until

    def cell_ends(self, time_us: Ints) -> Ints:
        """Return the first time after the cell of each time, which tells cells apart; NO_END for all if sessions are not cut.

        >>> SessionWindows.with_gap("1 second").max_length("1 minute").cell_ends(np.array([0, 59_999_999, 60_000_000])).tolist()
        [60000000, 60000000, 120000000]
        """
        ends = (
            np.minimum(_cell_ends(time_us, earlier.max_length_us, earlier.offset_us), earlier.until_us)
            for earlier in self.before
        )
        return self._by_time(_cell_ends(time_us, self.max_length_us, self.offset_us), ends, time_us)

    def _by_time(self, now: Ints | int, earlier: Iterable[Ints | int], time_us: Ints) -> Ints:
        """Return for each time the value that holds for it: one of `earlier`, which are as those of `before`, or that of now."""
        found = now
        for limits, value in reversed([*zip(self.before, earlier, strict=True)]):
            found = np.where(time_us < limits.until_us, value, found)
        return cast("Ints", found)

    def bounds(self, watermark_us: int) -> Bounds:
        """Return the bounds for a micro-batch, given the watermark after the batch before it.

        >>> SessionWindows.with_gap("1 second").grace("1 second").bounds(10_000_000)
        Bounds(open_us=9000000, close_us=8000000, expired_us=8000000, oldest_end_us=7000000)
        """
        # Stored sessions are kept a gap beyond retention's end: the oldest event that is accepted still finds a neighbour.
        return self._bounds(watermark_us - self.grace_us, watermark_us - self.kept_us)

    def bounds_at(self, progress: Progress) -> Bounds:
        """Return the bounds for a micro-batch, given how far the pipeline was after the batch before it."""
        return self._bounds(progress.close_us, progress.expired_us)

    def _bounds(self, open_us: int, expired_us: int) -> Bounds:
        return Bounds(
            open_us=open_us,
            close_us=open_us if self.limited else open_us - self.gap_us,
            expired_us=expired_us,
            oldest_end_us=expired_us - self.widest_us,
        )


def _cell_ends(time_us: Ints, length_us: int | None, offset_us: int) -> Ints:
    if length_us is None:
        return np.full_like(time_us, NO_END, np.int64)
    return ((time_us - offset_us) // length_us + 1) * length_us + offset_us


def bounds_after(windows: SessionWindows, state: Mapping[str, Any], *, by_policy: bool) -> Bounds:
    """Return the bounds for the micro-batch after the one that left a state; `by_policy` says that sessions are sent by policy.

    Then, and with a retention by number, the state says how far sessions are closed, which never goes back.
    """
    if by_policy or KEPT in state:
        return windows.bounds_at(Progress.of(state))
    return windows.bounds(watermark_of(state))
