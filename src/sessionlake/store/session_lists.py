"""The store of sessions that are sent by policy: as the one of sessions, with lists of those whose changes wait to be sent."""

from collections.abc import Sequence
from pathlib import Path

from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.lists import LISTS, HasLists
from sessionlake.store.segmented import SegmentedSessionStore


class ListedSessionStore(HasLists, SegmentedSessionStore):
    """Records and lists of one shard."""

    def __init__(
        self,
        path: Path,
        interval_us: int,
        bucket: int,
        opened: OpenSegments = FileSegments,
        *,
        with_until: bool = False,
    ) -> None:
        """`bucket` is the length of the stretch of time that a list is of, microseconds."""
        super().__init__(path, interval_us, opened, with_until=with_until)
        self.bucket = bucket

    @property
    def segments(self) -> Sequence[int]:
        """The segments that have sessions."""
        return [number for number in super().segments if number != LISTS]
