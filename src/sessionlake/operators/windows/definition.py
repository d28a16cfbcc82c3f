"""Windows as users of the Python API write them: `TumblingWindows.of("1 hour").grace("10 minutes").until("1 day")`."""

from dataclasses import dataclass, replace
from typing import Any, Self

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows


@dataclass(frozen=True)
class WindowDefinition:
    """Windows by time, with their grace and their retention. Create one by `of` of a subclass.

    >>> hours = TumblingWindows.of("1 hour").grace("10 minutes").until("1 day")
    >>> hours.grace_us, hours.retention_us
    (600000000, 86400000000)
    """

    windows: TimeWindows
    grace_text: str | None = None
    until_text: str | None = None
    retention_count: int | None = None

    def grace(self, duration: str) -> Self:
        """Return these windows with a grace: how long after its end a window takes events.

        Without a grace it is as long as the retention.

        >>> TumblingWindows.of("1 hour").grace("10 minutes").grace_us
        600000000
        """
        return replace(self, grace_text=duration)

    def until(self, duration: str) -> Self:
        """Return these windows with a retention: how far before the watermark an event may lie.

        Without a retention it is the size or the grace, the longer one.

        >>> TumblingWindows.of("1 hour").until("1 day").retention_us
        86400000000
        """
        return replace(self, until_text=duration)

    def keep(self, retention_count: int) -> Self:
        """Return these windows with a retention by number: only the newest `retention_count` accepted events are kept.

        ConfigError if the number is less than 1.

        >>> TumblingWindows.of("1 hour").keep(1000).retention_count
        1000
        """
        if retention_count < 1:
            raise ConfigError(f"keep: {retention_count} is too few events; write 1 or more")
        return replace(self, retention_count=retention_count)

    def offset(self, duration: str) -> Self:
        """Return these windows on a grid that begins at the epoch + a duration; ConfigError for sliding windows.

        For example, days that begin at 06:00 UTC:

        >>> TumblingWindows.of("1 day").offset("6 hours").windows.offset_us
        21600000000
        """
        if not isinstance(self.windows, Grid):
            raise ConfigError(f"offset: {duration!r} moves a grid, and sliding windows lie on none; remove it")
        return replace(self, windows=replace(self.windows, offset_us=parse_duration(duration, "offset")))

    @property
    def content(self) -> dict[str, Any]:
        """The section [window] of a config with these windows. Tumbling windows are hopping ones there, a size apart.

        >>> SlidingWindows.of("1 hour").until("1 day").content
        {'kind': 'sliding', 'exits': True, 'size': '1 hour', 'grace': '1 day', 'retention': '1 day', 'retention_count': None}
        """
        windows = self.windows
        own = (
            {"kind": "sliding", "exits": windows.exits}
            if isinstance(windows, Sliding)
            else {
                "kind": "hopping",
                "advance": spoken_duration(windows.advance_us),
                "offset": spoken_duration(windows.offset_us),
            }
        )
        lengths = {"size": windows.size_us, "grace": self.grace_us, "retention": self.retention_us}
        texts = {name: spoken_duration(length) for name, length in lengths.items()}
        return {**own, **texts, "retention_count": self.retention_count}

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
    """Windows that follow one another without a gap. The start is inclusive, the end exclusive.

    >>> TumblingWindows.of("1 hour").windows
    Grid(size_us=3600000000, advance_us=3600000000, offset_us=0)
    """

    @classmethod
    def of(cls, size: str) -> Self:
        """Return windows of a size, for example "1 hour".

        >>> TumblingWindows.of("1 hour").windows.size_us
        3600000000
        """
        size_us = parse_duration(size, "size")
        return cls(Grid(size_us, size_us, 0))


class HoppingWindows(WindowDefinition):
    """Windows that overlap: one begins every `advance`. The start is inclusive, the end exclusive.

    >>> HoppingWindows.of("1 hour", "5 minutes").windows
    Grid(size_us=3600000000, advance_us=300000000, offset_us=0)
    """

    @classmethod
    def of(cls, size: str, advance: str) -> Self:
        """Return windows of a size, one of which begins every `advance`.

        >>> HoppingWindows.of("1 hour", "5 minutes").windows.advance_us
        300000000
        """
        return cls(Grid(parse_duration(size, "size"), parse_duration(advance, "advance"), 0))


class SlidingWindows(WindowDefinition):
    """Windows that end at an event, or begin right after one (KIP-450). Both bounds are inclusive.

    >>> SlidingWindows.of("10 minutes").windows
    Sliding(size_us=600000000, exits=True)
    """

    @classmethod
    def of(cls, size: str, *, exits: bool = True) -> Self:
        """Return windows of a size; without `exits` no window begins right after an event.

        >>> SlidingWindows.of("10 minutes", exits=False).windows.exits
        False
        """
        return cls(Sliding(parse_duration(size, "size"), exits=exits))
