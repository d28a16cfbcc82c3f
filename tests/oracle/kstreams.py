"""What Kafka Streams' KStreamSessionWindowAggregate does with each record, in a list instead of a session store.

It can't expire: retention is infinite. Values are event counts and sums. Stream time is over all keys (one partition).
"""

from __future__ import annotations

from typing import Any


class KStreamsSimulator:
    def __init__(self, gap: int, grace: int) -> None:
        self.gap, self.grace = gap, grace
        self.stream_time: int | None = None
        self.store: dict[tuple[str, int, int], tuple[int, float]] = {}

    def process(self, key: str, time: int, value: float) -> list[tuple[Any, ...]] | None:
        """Return what is forwarded, in order: (op, key, start, end, count, sum); None for a record skipped as late."""
        # Kafka raises stream time by the record itself before it decides; a record that does so is never late.
        self.stream_time = time if self.stream_time is None else max(self.stream_time, time)
        close = self.stream_time - self.grace - self.gap
        found = {
            window: aggregate
            for window, aggregate in self.store.items()
            if window[0] == key and window[2] >= time - self.gap and window[1] <= time + self.gap
        }
        start = min([time, *(window[1] for window in found)])
        end = max([time, *(window[2] for window in found)])
        if end < close:
            return None
        forwarded: list[tuple[Any, ...]] = []
        if (start, end) != (time, time):
            for window in found:
                del self.store[window]
                forwarded.append(("delete", *window))
        count = 1 + sum(aggregate[0] for aggregate in found.values())
        total = value + sum(aggregate[1] for aggregate in found.values())
        self.store[key, start, end] = (count, total)
        forwarded.append(("upsert", key, start, end, count, total))
        return forwarded

    @staticmethod
    def by_start(forwarded: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Drop the deletes whose (key, start) is upserted again: sessionlake's identity has no end in it."""
        upserted = {change[1:3] for change in forwarded if change[0] == "upsert"}
        return [change for change in forwarded if change[0] == "upsert" or change[1:3] not in upserted]
