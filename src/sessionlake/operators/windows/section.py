"""The sections [window] and [emit] of a config."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal

from pydantic import Field

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.sections import Duration, OperatorSection, Section
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.section import CountSection
from sessionlake.operators.windows.emission import BATCH, CLOSE, END, OFF, Policies
from sessionlake.operators.windows.policy import policy
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows, rows_are_state

MAX_SLICES = 4096
"""Slices of a window, and windows of a slice."""


class EmitSection(Section):
    """When windows are sent."""

    early: policy(OFF, BATCH) = OFF  # type: ignore[valid-type]
    """Changes of windows that are not full: never, with each batch, or once a period of the clock."""
    full: Literal["end", "close"] = "end"
    """When a window is sent as full: as the watermark passes its end, or as it closes."""
    late: policy(BATCH, CLOSE) = "10 seconds"  # type: ignore[valid-type]
    """Changes of full windows: with each batch, once a period, or as they close."""
    tick_offset: Duration = "0 seconds"
    """Periods of the clock begin at the epoch + it."""

    @property
    def policies(self) -> Policies:
        """The policies, periods in microseconds."""
        early, late = (
            text if text in (OFF, BATCH, CLOSE) else parse_duration(text) for text in (self.early, self.late)
        )
        return Policies(early, self.full, late, parse_duration(self.tick_offset))


class WindowSection(OperatorSection):
    """Windows on the axis of event time."""

    BESIDE: ClassVar[tuple[str, ...]] = ("emit",)
    KEYED: ClassVar[bool] = False
    RESERVED: ClassVar[frozenset[str]] = frozenset(
        (
            "window_key",
            "window_start",
            "window_end",
            "window_id",
            "window_date",
            "trigger",
            "emitted_at",
            "at_event",
            "final",
        )
    )

    kind: Literal["tumbling", "hopping", "sliding"]
    by: Literal["time", "count"] = "time"
    size: Duration
    advance: Duration | None = None
    """Of hopping windows: the time from one window's start to the next one's."""
    offset: Duration = "0 seconds"
    """Where the grid begins: a window starts at the epoch + offset + a multiple of the advance."""
    exits: bool | None = None
    """Of sliding windows: whether there is one, too, for what is left when an event drops out."""
    grace: Duration | None = None
    """How long after its end a window takes events; as long as the retention where none is given."""
    retention_time: Duration
    """How long before the watermark events are taken in."""
    retention_count: int | None = Field(default=None, ge=1)
    """How many accepted events are kept at most: older ones are beyond retention as well."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    emit: EmitSection = EmitSection()

    @classmethod
    def variant(cls, value: Mapping[str, Any]) -> type[OperatorSection]:
        """Return the class of windows by count, where these are asked for."""
        return CountSection if value.get("by") == "count" else cls

    @property
    def size_us(self) -> int:
        """Length of a window."""
        return parse_duration(self.size)

    @property
    def advance_us(self) -> int:
        """Time from one window's start to the next one's."""
        return self.size_us if self.advance is None else parse_duration(self.advance)

    @property
    def offset_us(self) -> int:
        """Offset of the grid."""
        return parse_duration(self.offset)

    @property
    def windows(self) -> TimeWindows:
        """The windows."""
        if self.kind == "sliding":
            return Sliding(self.size_us, exits=self.exits is not False)
        return Grid(self.size_us, self.advance_us, self.offset_us)

    @property
    def grace_us(self) -> int:
        """Grace after a window's end."""
        return self.retention_us if self.grace is None else parse_duration(self.grace)

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention_time)

    @property
    def ends_inclusive(self) -> bool:
        """Whether a window's end is in it: that of a sliding one is."""
        return self.kind == "sliding"

    @property
    def sums_events(self) -> bool:
        """Whether each accepted event is in exactly one row: of tumbling windows that are sent with every change."""
        return rows_are_state(self.windows, self.emit.policies)

    @property
    def skew_us(self) -> int:
        """The size: an early event then closes at most the window before its own."""
        return self.size_us

    def in_words(self) -> str:
        """Return which windows there are, when they are sent, and until when they change."""
        every = f", one every {self.advance}" if self.kind == "hopping" else ""
        sent = "closes" if self.emit.full == CLOSE else "ends"
        early = "" if self.emit.early == OFF else ", and changes before that"
        return (
            f"{self.kind} windows of {self.size}{every}, each sent as it {sent}{early}; events change a window until "
            f"{spoken_duration(self.grace_us)} after its end"
        )

    def check(self) -> None:
        """Refuse windows that can't be cut, keys of other kinds, and a retention shorter than size or grace."""
        if self.size_us == 0:
            raise ConfigError(f"window.size: {self.size!r} must be longer than zero; write for example '1 hour'")
        self._check_kind()
        needed = max(self.size_us, self.grace_us)
        if self.retention_us < needed:
            raise ConfigError(
                f"window.retention_time: {self.retention_time!r} is shorter than size and grace ask for; "
                f"write '{spoken_duration(needed)}' or longer"
            )
        emit = self.emit
        if emit.full == CLOSE and self.grace is None:
            raise ConfigError("window.grace: is missing; emit.full = 'close' sends a window when its grace is over")
        for name, chosen in (("early", emit.early), ("late", emit.late)):
            if emit.full == CLOSE and chosen == BATCH:
                raise ConfigError(
                    f"emit.{name}: 'batch' does not go with full = 'close', which holds windows back; "
                    f"write full = '{END}', or another policy"
                )

    def _check_kind(self) -> None:
        hopping, sliding = self.kind == "hopping", self.kind == "sliding"
        if hopping and self.advance is None:
            raise ConfigError("window.advance: is missing; hopping windows need one, as in '5 minutes'")
        if not hopping and self.advance is not None:
            raise ConfigError(f"window.advance: is of hopping windows, and these are {self.kind}; remove it")
        if sliding and self.offset_us:
            raise ConfigError("window.offset: sliding windows lie on no grid; remove it")
        if not sliding and self.exits is not None:
            raise ConfigError(f"window.exits: is of sliding windows, and these are {self.kind}; remove it")
        if not 0 < self.advance_us <= self.size_us:
            raise ConfigError(
                f"window.advance: {self.advance!r} must be longer than zero and at most the size, {self.size!r}; "
                "between windows that are further apart events would belong to none"
            )
        windows = self.windows
        if isinstance(windows, Grid):
            slices, overlap = windows.size_us // windows.slice_us, -(-windows.size_us // windows.advance_us)
            if max(slices, overlap) > MAX_SLICES:
                raise ConfigError(
                    f"window.advance: {self.advance!r} cuts windows of {self.size!r} into {slices} slices, {MAX_SLICES} are the most; "
                    "write one that divides the size into fewer"
                )

    @property
    def bound_in_time(self) -> bool:
        """All are durations."""
        return True

    def bound_settings(self) -> dict[str, Any]:
        """Return what decides how windows lie, and which tables their state is in."""
        return {
            "window.kind": self.kind,
            "window.size": self.size_us,
            "window.advance": self.advance_us,
            "window.offset": self.offset_us,
            "window.exits": self.exits is not False,
            "emit": "every change" if self.emit.policies.updates else "by policy",
        }

    def live_settings(self) -> dict[str, Any]:
        """Return the policies, and how many events are kept."""
        return {"emit": asdict(self.emit.policies), "retention_count": self.retention_count}
