"""Messages kept next to an aggregator's windows: by key and place, within the retention."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.texts import sorted_codes
from sessionlake.operators.joins.spec import Side
from sessionlake.operators.shared.sides.columns import packed, unpacked
from sessionlake.store.buffered import Part
from sessionlake.store.messages import HEAD, Messages, MessageStore, together
from sessionlake.store.segmented import segment_interval
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.positions import PARTITION
from sessionlake.stream.watermark import NO_WATERMARK

_SIDE = "m"
_BLOCK = 256
"""The length of a block by count: this number of messages."""


@dataclass(frozen=True)
class MessageRetention:
    """The retention of messages: by time a length of time, by count a number of the newest messages of each partition."""

    by_time: bool
    length: int
    """Microseconds, or messages."""
    near: int
    """The largest distance between messages read together: a window's size."""

    @property
    def segment(self) -> int:
        """Length of the store's segments; by count a power of two, so that no segment has messages of two partitions."""
        if self.by_time:
            return segment_interval(self.length)
        return max(_BLOCK, 1 << max(self.length // 2, 1).bit_length())

    @property
    def block(self) -> int:
        """Length of a block. A new message writes its block again, so blocks are short."""
        return max(1, min(self.near // 16, self.segment)) if self.by_time else _BLOCK


class RetainedMessages:
    """The messages, in a part of the operator's database."""

    def __init__(self, room: MessageRetention, events: EventSpec, part: Part) -> None:
        self._room = room
        types = events.columns
        self._side = Side("messages", None, types.inputs, events)
        self._db = part
        self._store = MessageStore(Path(), block=room.block, segment=room.segment, opened=lambda _: part)
        self._store.index()

    def add(self, archived: pa.Table, position: Ints, expired_us: int, counts: dict[int, int]) -> None:
        """Keep messages (key, time_us, and the struct `event`) with positions, and drop messages beyond the retention.

        `counts` says how many messages of each partition were kept so far.
        """
        codes, keys = sorted_codes(archived["key"])
        head = np.zeros(len(archived), HEAD)
        head["time"], head["position"] = archived["time_us"].to_numpy(), position
        head["x"] = head["time"] if self._room.by_time else position
        event = combined(archived["event"])
        columns = [pa.compute.struct_field(event, name) for name in self._side.columns]
        new = Messages(codes, head, packed(self._side, columns, len(archived)))
        stored = self._store.around(_SIDE, keys, codes, new["x"], new["x"])
        writes = self._store.writes(_SIDE, keys, together([stored, new]))
        self._store.apply(writes, {}, expired_us if self._room.by_time else NO_WATERMARK)
        if not self._room.by_time:
            self._drop(counts)

    def between(
        self, low: int, high: int, key: str | None, expired_us: int, counts: dict[int, int]
    ) -> list[dict[str, Any]]:
        """Return the messages with places in [low, high], by place: key, time_us, position, and the kept columns."""
        names, found = self._store.scan(_SIDE, low, high, None if key is None else key.encode())
        return rows_of(self._side, names, found.take(np.flatnonzero(self._is_retained(found, expired_us, counts))))

    def _is_retained(self, found: Messages, expired_us: int, counts: dict[int, int]) -> Any:
        if self._room.by_time:
            return found["x"] >= expired_us
        partition = found["x"] // PARTITION
        known, place = np.unique(partition, return_inverse=True)
        least = np.array([counts.get(p, 0) - self._room.length for p in known.tolist()], np.int64)
        return found["x"] - partition * PARTITION > least[place.reshape(-1)]

    def _drop(self, counts: dict[int, int]) -> None:
        length = self._room.segment
        for number in self._db.segments:
            partition, last = divmod((number + 1) * length - 1, PARTITION)
            if last <= counts.get(partition, 0) - self._room.length:
                self._db.drop([number])


def rows_of(side: Side, names: Sequence[bytes], found: Messages) -> list[dict[str, Any]]:
    """Return messages as plain rows: key, time_us, position, and columns."""
    columns = {
        "key": pa.array([names[code].decode() for code in found.codes.tolist()], pa.string()),
        "time_us": pa.array(found["time"]),
        "position": pa.array(found["position"]),
        **dict(zip(side.types, unpacked(side, found.columns), strict=True)),
    }
    rows: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return rows
