"""Windows as users of the Python API write them: `TumblingWindows.of("1 hour").grace("10 minutes").until("1 day")`."""

from dataclasses import dataclass, replace
from typing import Self

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows


@dataclass(frozen=True)
class WindowDefinition:
    """Windows by time, how long after its end each takes events, and how long before the watermark events are taken in."""

    windows: TimeWindows
    grace_text: str | None = None
    until_text: str | None = None
    retention_count: int | None = None

    def grace(self, duration: str) -> Self:
        """Return them with a grace; as long as the retention where none is given."""
        return replace(self, grace_text=duration)

    def until(self, duration: str) -> Self:
        """Return them with a retention; as long as size and grace ask for where none is given."""
        return replace(self, until_text=duration)

    def keep(self, retention_count: int) -> Self:
        """Return them with the newest so many accepted events kept, none that are older; ConfigError where it is none."""
        if retention_count < 1:
            raise ConfigError(f"keep: {retention_count} events leave no window any; write 1 or more")
        return replace(self, retention_count=retention_count)

    def offset(self, duration: str) -> Self:
        """Return them on a grid that begins at the epoch + a duration; ConfigError where they lie on none."""
        if not isinstance(self.windows, Grid):
            raise ConfigError(f"offset: {duration!r} moves a grid, and sliding windows lie on none; remove it")
        return replace(self, windows=replace(self.windows, offset_us=parse_duration(duration, "offset")))

    @property
    def retention_us(self) -> int:
        """Retention in microseconds."""
        if self.until_text is not None:
            return parse_duration(self.until_text, "until")
        return max(self.windows.size_us, 0 if self.grace_text is None else self.grace_us)

    @property
    def grace_us(self) -> int:
        """Grace in microseconds."""
        return self.retention_us if self.grace_text is None else parse_duration(self.grace_text, "grace")


class TumblingWindows(WindowDefinition):
    """Windows side by side."""

    @classmethod
    def of(cls, size: str) -> Self:
        """Return windows of a size."""
        size_us = parse_duration(size, "size")
        return cls(Grid(size_us, size_us, 0))


class HoppingWindows(WindowDefinition):
    """Windows that overlap: one begins every `advance`."""

    @classmethod
    def of(cls, size: str, advance: str) -> Self:
        """Return windows of a size, one every advance."""
        return cls(Grid(parse_duration(size, "size"), parse_duration(advance, "advance"), 0))


class SlidingWindows(WindowDefinition):
    """Windows that end where an event lies, or begin right after one (KIP-450)."""

    @classmethod
    def of(cls, size: str, *, exits: bool = True) -> Self:
        """Return windows of a size; without `exits` none begins right after an event."""
        return cls(Sliding(parse_duration(size, "size"), exits=exits))
