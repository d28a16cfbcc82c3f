"""A store's database in dicts, for tests that open thousands of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from sessionlake.store.api import OfObjects, SegmentWrites, as_objects


class MemorySegments(OfObjects):
    """See `store.api.Segments`."""

    def __init__(self, path: Path) -> None:
        del path
        self.clear()

    @property
    def segments(self) -> list[int]:
        return sorted(self._segments)

    def meta(self, name: str) -> bytes | None:
        return self._meta.get(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        return [self._segments[segment].get(key) for key in keys]

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        found = sorted(self._segments[segment].items())
        inside = [(k, v) for k, v in found if (low is None or k >= low) and (high is None or k <= high)]
        return inside[:limit]

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        for segment, (keys, values) in writes.items():
            of = self._segments.setdefault(segment, {})
            for key, value in zip(as_objects(keys), as_objects(values), strict=True):
                if value is None:
                    of.pop(key, None)
                else:
                    of[key] = value
        self._meta.update(meta)

    def drop_before(self, segment: int) -> None:
        self.drop([number for number in self._segments if number < segment])

    def drop(self, segments: Iterable[int]) -> None:
        for number in segments:
            self._segments.pop(number, None)

    def clear(self) -> None:
        self._segments: dict[int, dict[bytes, bytes]] = {}
        self._meta: dict[str, bytes] = {}

    def close(self) -> None:
        """Do nothing."""
