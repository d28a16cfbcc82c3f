"""The sections [window] and [emit] of windows and sessions by count."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from sessionlake.config.durations import parse_duration
from sessionlake.config.fields import RETENTION, Duration, Section
from sessionlake.config.sections import Facts, OperatorSection
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.spec import (
    PARTITION_SIZE,
    PER_KEY,
    PER_PARTITION,
    Counts,
    Grid,
    Sessions,
    Sliding,
    policies,
)
from sessionlake.operators.shared.windowing.policies import BATCH, OFF, Policies
from sessionlake.operators.shared.windowing.policy import policy

MAX_SLICES = 4096
"""Slices of a window, and windows of a slice."""
Messages = Annotated[int, Field(ge=1)]
"""Messages of a window."""
Skipped = Annotated[int, Field(ge=0)] | None
"""Messages before the first window, which are in none."""


class CountEmitSection(Section):
    """When windows are sent: full ones at once."""

    early: policy(OFF, BATCH) = OFF  # type: ignore[valid-type]
    """Changes of windows that are not full: never, with each batch, or once a period of the clock."""
    tick_offset: Duration = "0 seconds"
    """Periods of the clock begin at the epoch + it."""

    @property
    def policies(self) -> Policies:
        """The policies, periods in microseconds."""
        early = self.early if self.early in (OFF, BATCH) else parse_duration(self.early)
        return policies(early, parse_duration(self.tick_offset))


class CountSection(OperatorSection):
    """Windows on the axis of message numbers; each kind has a class."""

    BESIDE: ClassVar[tuple[str, ...]] = ("aggregates", "emit")
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"retention_time": "retention"}
    INSTEAD: ClassVar[Mapping[str, str]] = {"ttl": "window.retention or window.retention_count"}
    TIMED: ClassVar[bool] = False
    KEYED: ClassVar[bool] = False
    PATIENCE: ClassVar[str] = "retention"
    NOT_UNIQUE: ClassVar[str | None] = "is not for windows by count, which number messages before duplicates are found"
    RESERVED: ClassVar[frozenset[str]] = frozenset(
        (
            *("window_key", "window_start", "window_end", "window_id", "window_date", "window_part"),
            *("trigger", "emitted_at", "final"),
        )
    )

    kind: str
    by: Literal["count"]
    retention: Annotated[Duration, RETENTION]
    """How long before the watermark events are taken in, and a key without messages is known."""
    retention_count: int
    """How many messages of a key, or of a partition, a window may ask for."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    emit: CountEmitSection = CountEmitSection()

    @property
    def windows(self) -> Counts:
        """The windows."""
        raise NotImplementedError

    @property
    def numbered(self) -> str:
        """The messages that are numbered together: those of a key, or of a source partition."""
        raise NotImplementedError

    @property
    def grace_us(self) -> int:
        """The retention: until it is over, no event is refused for its time."""
        return self.retention_us

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention)

    @property
    def skew_us(self) -> int:
        """A minute: no window depends on times."""
        return 0

    @property
    def facts(self) -> Facts:
        """A window has the message that it ends with. Windows that lie side by side have each event once, if every change is sent."""
        return Facts(ends_inclusive=True, sums_events=self._each_once and self.emit.early == BATCH)

    @property
    def _each_once(self) -> bool:
        """Whether each message is in exactly one window."""
        windows = self.windows
        return isinstance(windows, Sessions) or (
            isinstance(windows, Grid) and windows.advance == windows.size and not windows.offset
        )

    def final_sql(self, end: str, state: Mapping[str, Any]) -> str:
        """A window is final when it is full: it says so, or the partition has come as far."""
        conditions, windows = ["trigger = 'full'"], self.windows
        if self.numbered == PER_PARTITION:
            further = windows.gap if isinstance(windows, Sessions) else 0
            for inputs in state.get("positions", {}).values():
                for partition, accepted in sorted(inputs.items(), key=lambda item: int(item[0])):
                    base = int(partition) * PARTITION_SIZE
                    conditions.append(f"({end} > {base} and {end} <= {base + accepted - further})")
        return "(" + " or ".join(conditions) + ")"

    def check(self) -> None:
        """Refuse windows without messages, and a retention shorter than a window."""
        windows = self.windows
        self._check_windows()
        needed = windows.gap if isinstance(windows, Sessions) else windows.size
        if self.retention_count < needed:
            raise ConfigError(
                f"window.retention_count: {self.retention_count} is less than the {needed} messages that windows ask for; "
                f"write {needed} or more"
            )
        if self.retention_us == 0:
            raise ConfigError(
                f"window.retention: {self.retention!r} must be longer than zero; write for example '7 days'"
            )

    def _check_windows(self) -> None:
        """Refuse windows that can't be."""

    def bound_settings(self) -> dict[str, Any]:
        """Return the settings that decide which windows there are."""
        names = ("size", "advance", "offset", "max_others")
        given = {f"window.{name}": getattr(self, name, None) for name in names}
        return {
            "window.by": "count",
            "window.kind": self.kind,
            **given,
            "window.offset": given["window.offset"] or 0,
            "window.per": self.numbered,
        }

    def live_settings(self) -> dict[str, Any]:
        """Return the policies."""
        return {"emit": asdict(self.emit.policies)}


class SizedSection(CountSection):
    """Windows of a number of messages."""

    size: Messages
    per: Literal["key", "partition"] | None = None
    """The messages that are numbered together: those of a key, the default if events have one, or of a source partition."""

    @property
    def numbered(self) -> str:
        """The messages that are numbered together."""
        return self.per or PER_KEY

    def without_key(self) -> Self:
        """Return the section with `per = "partition"` as the default."""
        return self if self.per is not None else self.model_copy(update={"per": PER_PARTITION})

    def in_words(self) -> str:
        """Return which windows there are."""
        of = "a key" if self.numbered == PER_KEY else "a partition of the source"
        return f"{self.kind} windows of {self.size} messages{self._every()}, numbered by {of}"

    def _every(self) -> str:
        return ""


class TumblingSection(SizedSection):
    """Windows one after the other."""

    kind: Literal["tumbling"]
    offset: Skipped = None

    @property
    def windows(self) -> Grid:
        """The windows."""
        return Grid(self.size, self.size, self.offset or 0)


class HoppingSection(SizedSection):
    """Windows that overlap."""

    kind: Literal["hopping"]
    advance: int
    """Messages from one window's start to the next one's."""
    offset: Skipped = None

    @property
    def windows(self) -> Grid:
        """The windows."""
        return Grid(self.size, self.advance, self.offset or 0)

    def _every(self) -> str:
        return f", one every {self.advance}"

    def _check_windows(self) -> None:
        size, advance = self.size, self.advance
        if not 0 < advance <= size:
            raise ConfigError(
                f"window.advance: {advance} must be 1 at least and at most the size, {size}; "
                "between windows that are further apart messages would belong to none"
            )
        slices, overlap = size // self.windows.slice, -(-size // advance)
        if max(slices, overlap) > MAX_SLICES:
            raise ConfigError(
                f"window.advance: {advance} cuts windows of {size} into {slices} slices, {MAX_SLICES} are the most; "
                "write one that divides the size into fewer"
            )


class SlidingSection(SizedSection):
    """For each message the window of it and those before."""

    kind: Literal["sliding"]

    @property
    def windows(self) -> Sliding:
        """The windows."""
        return Sliding(self.size)


class SessionsSection(CountSection):
    """Sessions of messages of a source partition."""

    kind: Literal["session"]
    max_others: Annotated[int, Field(ge=0)]
    """Messages of others that may lie between two of a session."""

    @property
    def windows(self) -> Sessions:
        """The windows."""
        return Sessions(self.max_others)

    @property
    def numbered(self) -> str:
        """The messages of a source partition."""
        return PER_PARTITION

    def in_words(self) -> str:
        """Return which sessions there are."""
        of = "a partition of the source"
        return f"sessions of messages of {of} with at most {self.max_others} of others between two of them"


CountedWindows = Annotated[
    TumblingSection | HoppingSection | SlidingSection | SessionsSection, Field(discriminator="kind")
]
"""The section [window] with by = "count"."""
