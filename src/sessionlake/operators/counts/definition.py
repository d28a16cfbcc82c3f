"""Windows by count as users of the Python API write them: `CountWindows.of(100).advance(10).per("partition").keep(1000)`."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.spec import PER_KEY, PER_PARTITION, Counts, Grid, Sessions, Sliding

_EVER_US = 1 << 58


@dataclass(frozen=True)
class CountDefinition:
    """Windows by count, and what of a key is kept."""

    windows: Counts
    numbered: str = PER_KEY
    """What is numbered: the messages of a key, or of a source partition."""
    until_text: str | None = None

    def until(self, duration: str) -> Self:
        """Return them with a retention: events that are older, before the watermark, are refused; for ever by default."""
        return replace(self, until_text=duration)

    def per(self, numbered: Literal["key", "partition"]) -> Self:
        """Return them over the messages of a key, or of a source partition; ConfigError for sessions, which are of the latter."""
        if isinstance(self.windows, Sessions) or numbered not in (PER_KEY, PER_PARTITION):
            raise ConfigError(f"per: {numbered!r} is none of 'key' and 'partition', or these are sessions; remove it")
        return replace(self, numbered=numbered)

    def keep(self, retention_count: int) -> Self:
        """Return them with the number of messages that a window may ask for; ConfigError where that is less than its size."""
        size = self.windows.gap if isinstance(self.windows, Sessions) else self.windows.size
        if retention_count < size:
            raise ConfigError(
                f"keep: {retention_count} is less than the {size} messages that windows ask for; write {size}"
            )
        return self

    @property
    def retention_us(self) -> int:
        """Retention in microseconds."""
        return _EVER_US if self.until_text is None else parse_duration(self.until_text, "until")


class CountWindows(CountDefinition):
    """Windows of a number of messages, one after the other or, with an advance, overlapping."""

    @classmethod
    def of(cls, size: int) -> Self:
        """Return windows of a size."""
        _check("size", size)
        return cls(Grid(size, size))

    def advance(self, messages: int) -> Self:
        """Return them with one beginning every so many messages; ConfigError where between two some would be in none."""
        grid = self._grid
        _check("advance", messages)
        if messages > grid.size:
            raise ConfigError(f"advance: {messages} is more than the size, {grid.size}; write {grid.size} or less")
        return replace(self, windows=replace(grid, advance=messages))

    def offset(self, messages: int) -> Self:
        """Return them with the first one beginning after so many messages, which are in none."""
        _check("offset", messages, least=0)
        return replace(self, windows=replace(self._grid, offset=messages))

    @property
    def _grid(self) -> Grid:
        assert isinstance(self.windows, Grid)  # noqa: S101 (`of` makes no other)
        return self.windows


class SlidingCountWindows(CountDefinition):
    """For each message the window of it and those before, as many as the size (SQL's ROWS PRECEDING)."""

    @classmethod
    def of(cls, size: int) -> Self:
        """Return windows of a size."""
        _check("size", size)
        return cls(Sliding(size))


class CountSessions(CountDefinition):
    """Messages of a key in a source partition with at most so many others of the partition between two."""

    @classmethod
    def of(cls, max_others: int) -> Self:
        """Return sessions that end with more messages of others."""
        _check("max_others", max_others, least=0)
        return cls(Sessions(max_others), PER_PARTITION)


def _check(name: str, value: int, least: int = 1) -> None:
    if value < least:
        raise ConfigError(f"{name}: {value} is too few messages; write {least} or more")
