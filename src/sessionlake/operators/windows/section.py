"""The sections [window] and [emit] of a config."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.fields import RETENTION, Duration
from sessionlake.config.sections import Facts, GracedSection
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.shared.windowing.policies import CLOSE, OFF
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows, rows_are_state

MAX_SLICES = 4096
"""Slices of a window, and windows of a slice."""


class WindowSection(GracedSection):
    """Windows on the axis of event time; each kind has a class."""

    BESIDE: ClassVar[tuple[str, ...]] = ("aggregates", "emit")
    CHANGES: ClassVar[tuple[str, str]] = ("a window", "its end")
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"retention_time": "retention"}
    INSTEAD: ClassVar[Mapping[str, str]] = {"ttl": "window.retention or window.retention_count"}
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

    kind: str
    by: Literal["time"] = "time"
    size: Duration
    retention: Annotated[Duration, RETENTION]
    """How far before the watermark an event may lie, for example "1 day". An older event is a dead letter."""
    retention_count: int | None = Field(default=None, ge=1)
    """How many accepted events are kept at most: older ones are beyond retention as well."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    emit: EmitSection = EmitSection()

    @property
    def size_us(self) -> int:
        """Length of a window."""
        return parse_duration(self.size)

    @property
    def windows(self) -> TimeWindows:
        """The windows."""
        raise NotImplementedError

    @property
    def default_grace_us(self) -> int:
        """The retention."""
        return self.retention_us

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention)

    @property
    def least_unique_us(self) -> int:
        """Size + grace: so long a window of its first event stays open. At most the retention, beyond which no event is taken in."""
        return min(self.size_us + self.grace_us, self.retention_us)

    @property
    def skew_us(self) -> int:
        """The size: an early event then closes at most the window before its own."""
        return self.size_us

    @property
    def facts(self) -> Facts:
        """The last event of a sliding window lies at its end. Rows that are the state have each event once. Whole numbers are durations."""
        return Facts(
            ends_inclusive=isinstance(self.windows, Sliding),
            sums_events=rows_are_state(self.windows, self.emit.policies),
            bound_in_time=True,
        )

    def in_words(self) -> str:
        """Return which windows there are, when they are sent, and until when they change."""
        sent = "closes" if self.emit.full == CLOSE else "ends"
        early = "" if self.emit.early == OFF else ", and changes before that"
        return (
            f"{self._in_words()}, each sent as it {sent}{early}; events change a window until "
            f"{spoken_duration(self.grace_us)} after its end"
        )

    def _in_words(self) -> str:
        return f"{self.kind} windows of {self.size}"

    def check(self) -> None:
        """Refuse windows that can't be cut, and a retention shorter than size or grace."""
        if self.size_us == 0:
            raise ConfigError(f"window.size: {self.size!r} must be longer than zero; write for example '1 hour'")
        self._check_grid()
        needed = max(self.size_us, self.grace_us)
        if self.retention_us < needed:
            raise ConfigError(
                f"window.retention: {self.retention!r} is shorter than size and grace ask for; "
                f"write '{spoken_duration(needed)}' or longer"
            )
        self.emit.check("window.grace", "window", graced=self.grace is not None)

    def _check_grid(self) -> None:
        """Refuse a grid that windows can't lie on."""

    def bound_settings(self) -> dict[str, Any]:
        """Return the settings that decide which windows there are, and which tables hold their state."""
        windows = self.windows
        return {
            "window.kind": self.kind,
            "window.size": self.size_us,
            "window.advance": windows.advance_us if isinstance(windows, Grid) else self.size_us,
            "window.offset": windows.offset_us if isinstance(windows, Grid) else 0,
            "window.exits": isinstance(windows, Grid) or windows.exits,
            "emit": "every change" if self.emit.policies.updates else "by policy",
        }

    def live_settings(self) -> dict[str, Any]:
        """Return the policies, and how many events are kept."""
        return {"emit": asdict(self.emit.policies), "retention_count": self.retention_count}


class TumblingSection(WindowSection):
    """Windows one after the other."""

    kind: Literal["tumbling"]
    offset: Duration = "0 seconds"
    """A window starts at the epoch + offset + a multiple of the size. For example, days with the offset "6 hours" begin at 06:00 UTC."""

    @property
    def windows(self) -> Grid:
        """The windows."""
        return Grid(self.size_us, self.size_us, parse_duration(self.offset))


class HoppingSection(WindowSection):
    """Windows that overlap."""

    kind: Literal["hopping"]
    advance: Duration
    """The time from one window's start to the next one's."""
    offset: Duration = "0 seconds"
    """A window starts at the epoch + offset + a multiple of the advance."""

    @property
    def windows(self) -> Grid:
        """The windows."""
        return Grid(self.size_us, parse_duration(self.advance), parse_duration(self.offset))

    def _in_words(self) -> str:
        return f"{super()._in_words()}, one every {self.advance}"

    def _check_grid(self) -> None:
        grid = self.windows
        if not 0 < grid.advance_us <= grid.size_us:
            raise ConfigError(
                f"window.advance: {self.advance!r} must be longer than zero and at most the size, {self.size!r}; "
                "between windows that are further apart events would belong to none"
            )
        slices, overlap = grid.size_us // grid.slice_us, -(-grid.size_us // grid.advance_us)
        if max(slices, overlap) > MAX_SLICES:
            raise ConfigError(
                f"window.advance: {self.advance!r} cuts windows of {self.size!r} into {slices} slices, {MAX_SLICES} are the most; "
                "write one that divides the size into fewer"
            )


class SlidingSection(WindowSection):
    """Windows that end at an event, or begin right after one."""

    kind: Literal["sliding"]
    exits: bool = True
    """Whether a window also begins right after an event, with the events that are left when it drops out."""
    offset: Duration = "0 seconds"
    """Zero, the other kinds' default: sliding windows lie on no grid."""

    @property
    def windows(self) -> Sliding:
        """The windows."""
        return Sliding(self.size_us, exits=self.exits)

    def _check_grid(self) -> None:
        if parse_duration(self.offset):
            raise ConfigError(
                f"window.offset: {self.offset!r} does not go with sliding windows, which lie on no grid; remove it"
            )


Windows = Annotated[TumblingSection | HoppingSection | SlidingSection, Field(discriminator="kind")]
"""The section [window] with by = "time"."""
