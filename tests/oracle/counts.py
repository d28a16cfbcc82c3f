"""Windows and sessions by count in plain Python, one object a window: what every batch sends. Shares no helper with the package."""

from dataclasses import dataclass, field
from typing import Any

Message = tuple[str, int, int, int]
"""Key, partition, event time, value."""
Sent = tuple[str, int, int, int, int, str]
"""Key, start, end, count, sum, trigger."""
FAR = 1 << 40


@dataclass
class Window:
    key: str
    partition: int
    start: int
    end: int
    values: list[int] = field(default_factory=list)
    unsent: bool = False


@dataclass
class Series:
    """What is numbered for a key: since when, how far, and its newest values by number."""

    first: int
    last: int
    newest: int
    values: dict[int, int] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)


class Machine:
    """`kind` is grid, sliding or session; `size` of sessions is the largest number of others; `early` is off, batch, or a period."""

    def __init__(
        self, kind: str, size: int, advance: int, offset: int, *, per_key: bool, early: str | int, retention: int
    ) -> None:
        self.kind, self.size, self.advance, self.offset = kind, size, advance, offset
        self.per_key, self.early, self.retention = per_key, early, retention
        self.series: dict[tuple[str, int], Series] = {}
        self.counts: dict[int, int] = {}
        self.arrivals = 0
        self.watermark: int | None = None
        self.clock: int | None = None

    def batch(self, messages: list[Message], clock: int, *, flush: bool = False) -> tuple[list[Sent], int]:
        """Return what a batch sends, sorted, and how many messages are beyond retention."""
        expired = -(1 << 62) if self.watermark is None else self.watermark - self.retention
        self.series = {name: s for name, s in self.series.items() if s.newest >= expired}
        refused = 0
        for key, partition, time, value in sorted(messages, key=lambda m: m[1]):
            if time < expired:
                refused += 1
                continue
            self.arrivals += 1
            self.counts[partition] = self.counts.get(partition, 0) + 1
            self.take(key, partition, time, value)
        accepted = [m[2] for m in messages if m[2] >= expired]
        if accepted:
            self.watermark = max(accepted) if self.watermark is None else max(self.watermark, *accepted)
        tick = self.early == "batch"
        if isinstance(self.early, int):
            tick = flush or (self.clock is not None and clock // self.early > self.clock // self.early)
        self.clock = clock
        return sorted(self.sent(tick=tick)), refused

    def take(self, key: str, partition: int, time: int, value: int) -> None:
        name = (key, 0 if self.per_key else partition)
        if name not in self.series:
            first = self.arrivals if self.per_key else 1
            self.series[name] = Series(first, first - 1, time)
        series = self.series[name]
        number = series.last + 1 if self.per_key else self.counts[partition]
        series.last, series.newest = number, max(series.newest, time)
        series.values[number] = value
        shown = 0 if self.per_key else partition
        if self.kind == "session":
            open_ = [w for w in series.windows if number - w.end - 1 <= self.size]
            if not open_:
                series.windows.append(Window(key, shown, number, number))
            session = series.windows[-1]
            session.end, session.unsent = number, True
            session.values.append(value)
        elif self.kind == "sliding":
            start = number - self.size + 1
            values = [v for n, v in series.values.items() if start <= n <= number]
            series.windows.append(Window(key, shown, start, number, values, unsent=True))
        else:
            start = series.first + self.offset
            while start <= number:
                if number < start + self.size:
                    found = [w for w in series.windows if w.start == start]
                    if not found:
                        found = [Window(key, shown, start, start + self.size - 1)]
                        series.windows += found
                    found[0].values.append(value)
                    found[0].unsent = True
                start += self.advance

    def sent(self, *, tick: bool) -> list[Sent]:
        found: list[Sent] = []
        for series in self.series.values():
            for window in list(series.windows):
                reached = series.last if self.per_key else self.counts.get(window.partition, 0)
                full = window.end <= reached if self.kind != "session" else reached - window.end > self.size
                if full or (window.unsent and tick):
                    base = window.partition * FAR
                    shown = (window.key, window.start + base, window.end + base)
                    found.append((*shown, len(window.values), sum(window.values), "full" if full else "early"))
                    window.unsent = False
                if full:
                    series.windows.remove(window)
        return found


def plain(rows: list[dict[str, Any]]) -> list[Sent]:
    """Return rows of a changelog whose aggregate is `s`, a sum, as the machine has them."""
    names = ("window_key", "window_start", "window_end", "event_count", "s", "trigger")
    return sorted(tuple(row[name] for name in names) for row in rows)  # type: ignore[misc]
