"""The time to live of a keyed table, written from docs/rules.md, rules 170 to 182, on top of `tests/oracle/tables.py`.

Everything is in one place: no shards, no index, no cursor. Each batch it takes a table's rows after the updates and says which
of them go.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.tables import Row, Table

Expired = Callable[[Row, int], bool]


@dataclass
class ExpiringTable:
    """A table whose rows expire; `expired` says of a key's row, with event_time and columns, whether it has at a clock."""

    table: Table
    expired: Expired
    every: int
    stream: bool = False
    most: int | None = None
    """Rows that a cleanup takes away at most, besides those that the batch wrote: the first ones by time, then key."""
    by_key: bool = False
    """Whether they are the first ones by key alone."""
    cleaned: int | None = None
    left_over: bool = False
    now: int = 0
    hidden: int = -(1 << 62)
    written: dict[str, int] = field(default_factory=dict)
    inserted: dict[str, int] = field(default_factory=dict)

    def batch(self, rows: Sequence[Row], clock: int) -> list[Row]:
        """Take a batch at a time of the clock; return its changes by key."""
        at = self.table.watermark if self.stream else clock
        due = at is not None and (self.cleaned is None or at // self.every != self.cleaned // self.every)
        before = self.table.rows()
        self.now = max(self.now, clock)
        for row in rows:
            if row.get("kind") == "tombstone" and row["revision"] == before.get(row["key"], {}).get("revision"):
                self.inserted.pop(row["key"], None)
        changes, _, _ = self.table.batch(rows)
        self.note()
        if at is not None and (due or self.left_over):
            self.cleaned = at
            for key in self.gone(at):
                changes = self.remove(key, "ttl", changes)
        return sorted((row for row in changes if self.matters(row, before)), key=lambda row: str(row["key"]))

    def gone(self, at: int) -> list[str]:
        """Return the keys whose rows a cleanup takes away, and take down whether there may be more."""
        rows = self.table.rows()
        times = {key: {"written": self.written[key], "inserted": self.inserted[key]} for key in rows}
        expired = [key for key, row in rows.items() if self.expired({**row, **times[key]}, at)]
        own = [key for key in expired if rows[key]["revision"] == self.table.batches - 1]
        others = sorted(
            set(expired) - set(own), key=lambda key: (0 if self.by_key else rows[key]["event_time"], key.encode())
        )
        self.left_over = self.most is not None and len(others) >= self.most
        return own + others[: self.most]

    def hide(self, ttl: int, clock: int) -> None:
        """Forget the rows that were written so long before a batch at a time of the clock, as if they had never been."""
        self.hidden = max(self.hidden, max(self.now, clock) - ttl)
        for key in self.table.rows():
            if self.written[key] <= self.hidden:
                del self.table.seen[key]
                self.inserted.pop(key)

    def note(self) -> None:
        """Take down when the rows that the batch wrote were written, and since when their keys have rows."""
        rows = self.table.rows()
        for key, row in rows.items():
            if row["revision"] == self.table.batches - 1:
                self.written[key] = self.now
            self.inserted.setdefault(key, self.now)
        self.inserted = {key: time for key, time in self.inserted.items() if key in rows}

    def remove(self, key: str, cause: str, changes: list[Row]) -> list[Row]:
        """Delete a key's row as a tombstone of it would; return the changes with that in place of its own."""
        version, _ = self.table.holds(key)
        time, offset, id_, _, _ = version
        self.table.seen[key].append(((time, offset, id_, True, b""), {"cause": cause}))
        self.table.revisions[key] = self.table.batches - 1
        self.inserted.pop(key, None)
        if not self.table.by_offset:
            self.table.last_delete = max(time, time if self.table.last_delete is None else self.table.last_delete)
        change: dict[str, Any] = {"op": "delete", "key": key, "time": time, "cause": cause, "v": None, "s": None}
        return [row for row in changes if row["key"] != key] + [change]

    def matters(self, change: Row, before: dict[str, Row]) -> bool:
        """Say whether a change is forwarded: by offset the deletion of what was not there is not."""
        return not self.table.by_offset or change["op"] == "upsert" or change["key"] in before
