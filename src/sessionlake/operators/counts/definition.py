"""Windows by count as users of the Python API write them: `CountWindows.of(100).advance(10).per("partition").keep(1000)`."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.spec import PER_KEY, PER_PARTITION, Counts, Grid, Sessions, Sliding

_EVER_US = 1 << 58


@dataclass(frozen=True)
class CountDefinition:
    """Windows by count, with their numbering and their retention. Create one by `of` of a subclass.

    >>> CountWindows.of(100).per("partition").numbered
    'partition'
    """

    windows: Counts
    numbered: str = PER_KEY
    """The messages that are numbered: those of a "key", or those of a source "partition"."""
    until_text: str | None = None

    def until(self, duration: str) -> Self:
        """Return these windows with a retention; events that lie further before the watermark are refused.

        Without a retention events of any age are accepted.

        >>> CountWindows.of(100).until("1 day").retention_us
        86400000000
        """
        return replace(self, until_text=duration)

    def per(self, numbered: Literal["key", "partition"]) -> Self:
        """Return these windows over the messages of a key, or of a source partition.

        ConfigError for sessions: they are always over a partition.

        >>> CountWindows.of(100).per("partition").numbered
        'partition'
        """
        if isinstance(self.windows, Sessions) or numbered not in (PER_KEY, PER_PARTITION):
            raise ConfigError(f"per: {numbered!r} is none of 'key' and 'partition', or these are sessions; remove it")
        return replace(self, numbered=numbered)

    def keep(self, retention_count: int) -> Self:
        """Check the number of messages that are kept, and return these windows; ConfigError if it is less than their size.

        >>> CountWindows.of(100).keep(10)
        Traceback (most recent call last):
        sessionlake.errors.ConfigError: keep: 10 is less than the 100 messages that windows ask for; write 100
        """
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
    """Windows of a number of messages. They follow one another, or overlap if they have an advance.

    >>> CountWindows.of(100).advance(10).windows
    Grid(size=100, advance=10, offset=0)
    """

    @classmethod
    def of(cls, size: int) -> Self:
        """Return windows of `size` messages.

        >>> CountWindows.of(100).windows.size
        100
        """
        _check("size", size)
        return cls(Grid(size, size))

    def advance(self, messages: int) -> Self:
        """Return these windows with one that begins every `messages` messages.

        ConfigError if that is more than the size: some messages would be in no window.

        >>> CountWindows.of(100).advance(10).windows.advance
        10
        """
        grid = self._grid
        _check("advance", messages)
        if messages > grid.size:
            raise ConfigError(f"advance: {messages} is more than the size, {grid.size}; write {grid.size} or less")
        return replace(self, windows=replace(grid, advance=messages))

    def offset(self, messages: int) -> Self:
        """Return these windows without the first `messages` messages, which are in no window.

        >>> CountWindows.of(100).offset(7).windows.offset
        7
        """
        _check("offset", messages, least=0)
        return replace(self, windows=replace(self._grid, offset=messages))

    @property
    def _grid(self) -> Grid:
        assert isinstance(self.windows, Grid)  # noqa: S101 (`of` makes no other)
        return self.windows


class SlidingCountWindows(CountDefinition):
    """One window for each message: that message and those before it, `size` in all (SQL's ROWS PRECEDING).

    >>> SlidingCountWindows.of(3).windows
    Sliding(size=3)
    """

    @classmethod
    def of(cls, size: int) -> Self:
        """Return windows of `size` messages.

        >>> SlidingCountWindows.of(3).windows.size
        3
        """
        _check("size", size)
        return cls(Sliding(size))


class CountSessions(CountDefinition):
    """Sessions by count: messages of a key between which lie few messages of other keys, in the same source partition.

    >>> CountSessions.of(5).windows
    Sessions(max_others=5)
    """

    @classmethod
    def of(cls, max_others: int) -> Self:
        """Return sessions in which at most `max_others` messages of other keys lie between two messages.

        >>> CountSessions.of(5).numbered
        'partition'
        """
        _check("max_others", max_others, least=0)
        return cls(Sessions(max_others), PER_PARTITION)


def _check(name: str, value: int, least: int = 1) -> None:
    if value < least:
        raise ConfigError(f"{name}: {value} is too few messages; write {least} or more")
