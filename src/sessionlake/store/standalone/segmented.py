"""Rows of windows or sessions on disk: a column family for each segment of time, so expired rows are dropped as whole families."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from sessionlake.store.standalone.families import Families, Layout, described
from sessionlake.store.standalone.keys import LARGEST, LEAST, RowKeys, TimedRows, escaped, past

_LARGEST_TIME = "largest_time"
_FAMILY = "t"


class SegmentedRows(TimedRows):
    """Rows in segments of their time, within a segment by key, time and rank, all ascending.

    A row is refused when its whole segment is expired, and hidden when it is expired itself.
    """

    persistent = True

    def __init__(
        self,
        path: Path,
        keys: RowKeys,
        *,
        kind: str,
        retention: int,
        interval: int | None,
        default_interval: int,
        settings: dict[str, object],
    ) -> None:
        made_with = described(path).get("segment_interval")
        self.interval = interval or (made_with if isinstance(made_with, int) else default_interval)
        self.keys = keys
        self.dropped = 0
        self._retention = retention
        self._families = Families(path, Layout(kind, {"segment_interval": self.interval, **settings}))
        found = self._families.meta(_LARGEST_TIME)
        self._largest = None if found is None else int(found)

    @property
    def live_from(self) -> int:
        """The least time that is not expired."""
        return LEAST if self._largest is None else max(LEAST, self._largest - self._retention + 1)

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Write a row; the largest time goes with it in one write."""
        moved = self._largest is None or time > self._largest
        if not moved and not self._has_place(time):
            self.dropped += 1
            return None
        family = self._family(time)
        if rank is None:
            rank = self._next_rank(family, key, time)
        row = self.keys.row(key, time, rank)
        if moved:
            self._families.write([(family, row, value)], {_LARGEST_TIME: b"%d" % time})
            self._largest = time
            self._drop_expired()
        else:
            self._families.put(family, row, value)
        return rank

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Remove a row."""
        self._families.put(self._family(time), self.keys.row(key, time, rank), None)

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        """Return a row's value."""
        return self._families.get(self._family(time), self.keys.row(key, time, rank))

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield the rows, segment by segment, of the segments that exist at the call."""
        first, last = time_from // self.interval, time_to // self.interval
        numbers = sorted((n for n in map(_number, list(self._families.names)) if first <= n <= last), reverse=backward)
        if key_from is not None and key_from == key_to:
            low: bytes | None = self.keys.row(key_from, time_from, self.keys.least_rank)
            high: bytes | None = self.keys.row(key_from, time_to, self.keys.largest_rank) + b"\0"
        else:
            low, high = (None if key_from is None else escaped(key_from)), (None if key_to is None else past(key_to))
        return self._rows(numbers, low, high, time_from, time_to, backward)

    def is_empty(self) -> bool:
        """Say whether there is no row."""
        return next(self.find(None, None, LEAST, LARGEST, backward=False), None) is None

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write a log's rows in a single write, except for segments expired by the log's largest time."""
        rows = [(self.keys.parts(row)[1], row, value) for row, value in records]
        times = [time for time, _, value in rows if value is not None]
        if self._largest is not None:
            times.append(self._largest)
        if not times:
            return
        self._largest = max(times)
        live = [(self._family(time), row, value) for time, row, value in rows if self._has_place(time)]
        self._families.write(live, {_LARGEST_TIME: b"%d" % self._largest})
        self._drop_expired()

    def flush(self) -> None:
        """Write the rows in memory to files."""
        self._families.flush()

    def close(self) -> None:
        """Release the database."""
        self._families.close()

    def _rows(
        self,
        numbers: list[int],
        low: bytes | None,
        high: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        parts = self.keys.parts
        for number in numbers:
            for row, value in self._families.items(f"{_FAMILY}{number}", low, high, backward):
                key, time, rank = parts(row)
                if time_from <= time <= time_to:
                    yield key, time, rank, value

    def _family(self, time: int) -> str:
        return f"{_FAMILY}{time // self.interval}"

    def _has_place(self, time: int) -> bool:
        """Say whether any time of a time's segment is live, without the one of grace that Kafka leaves."""
        return self._largest is None or time // self.interval >= self._oldest()

    def _oldest(self) -> int:
        assert self._largest is not None  # noqa: S101 - callers ask first
        return (self._largest - self._retention) // self.interval

    def _drop_expired(self) -> None:
        oldest = self._oldest()
        for name in [name for name in self._families.names if _number(name) < oldest]:
            self._families.drop(name)

    def _next_rank(self, family: str, key: bytes, time: int) -> int:
        last = self._families.last(
            family,
            self.keys.row(key, time, self.keys.least_rank),
            self.keys.row(key, time, self.keys.largest_rank) + b"\0",
        )
        return self.keys.least_rank if last is None else self.keys.parts(last)[2] + 1


def _number(family: str) -> int:
    return int(family.removeprefix(_FAMILY))
