"""A keyed table written from docs/rules.md, rules 150 to 155: it keeps every update it ever accepted, and forgets no deletion.

An update is a tuple that compares as the rules say: (time, offset, id, deleted, bytes), or (offset, ...) for that order.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Version = tuple[int, int, bytes, bool, bytes]


def value_bytes(row: Row) -> bytes:
    """Return what ranks the values of a table with the columns v (long) and s (text): their nulls, then v, then s."""
    number, text = row.get("v"), row.get("s")
    data = (text or "").encode()
    known = (number is not None) + 2 * (text is not None) + 0b11111100
    return bytes([known]) + struct.pack("<qI", number or 0, len(data)) + data


@dataclass
class Table:
    """One table; times in microseconds."""

    retention: int
    by_offset: bool = False
    seen: dict[str, list[tuple[Version, Row]]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None
    horizon: int | None = None
    last_delete: int | None = None
    batches: int = 0

    def batch(self, rows: Sequence[Row]) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Take a batch; return its changes by key, the refused rows, and its counts."""
        events, tombstones = [r for r in rows if "kind" not in r], [r for r in rows if "kind" in r]
        before = {key: self.holds(key) for key in self.seen}
        counts = dict.fromkeys(("accepted", "dead", "changed", "superseded", "unchanged", "applied", "stale"), 0)
        deleted = self.remove(tombstones, counts)
        dead = [row for row in events if self.is_refused(row["time_us"])]
        accepted = [row for row in events if not self.is_refused(row["time_us"])]
        counts["accepted"], counts["dead"] = len(accepted), len(dead)
        after_removal = {key: self.holds(key) for key in self.seen}
        best: dict[str, tuple[Version, Row]] = {}
        for row in accepted:
            found = self.version(row), row
            if row["key"] not in best or self.rank(found[0]) > self.rank(best[row["key"]][0]):
                best[row["key"]] = found
        counts["superseded"] += len(accepted) - len(best)
        changes = []
        for key, (version, row) in best.items():
            held = after_removal.get(key)
            was = None if key not in before or before[key][0][3] else before[key]
            outcome = self.outcome(version, held, present=was is not None)
            counts[outcome] += 1
            if outcome == "changed":
                self.seen.setdefault(key, []).append((version, {**row, "cause": "update"}))
                deleted += [version[0]] if version[3] else []
        for key in self.seen:
            held = self.holds(key)
            if held != before.get(key):
                self.revisions[key] = self.batches
                version, row = held
                change = {
                    "op": "delete" if version[3] else "upsert",
                    "key": key,
                    "time": version[0],
                    "cause": row["cause"],
                }
                changes.append({**change, **{c: None if version[3] else row.get(c) for c in ("v", "s")}})
        self.advance(accepted, deleted)
        return sorted(changes, key=lambda row: str(row["key"])), dead, counts

    def remove(self, tombstones: Sequence[Row], counts: dict[str, int]) -> list[int]:
        """Delete the rows that tombstones name; return their times."""
        held = {key: self.holds(key) for key in self.seen}
        deleted: dict[str, int] = {}
        for row in sorted(tombstones, key=lambda row: row["correction_id"]):
            key = row["key"]
            if key not in held or held[key][0][3] or key in deleted or self.revisions[key] != row["revision"]:
                counts["stale"] += 1
                continue
            counts["applied"] += 1
            time, offset, id_, _, _ = held[key][0]
            self.seen[key].append(((time, offset, id_, True, b""), {"cause": "tombstone"}))
            deleted[key] = time
        return list(deleted.values())

    def outcome(self, version: Version, held: tuple[Version, Row] | None, *, present: bool) -> str:
        """Return what becomes of a batch's greatest update of a key, given what is held, and whether there was a row."""
        if held is not None and self.rank(version) <= self.rank(held[0]):
            return "unchanged" if self.rank(version) == self.rank(held[0]) else "superseded"
        # By offset nothing older can come, so that to delete what is not there is nothing.
        return "unchanged" if self.by_offset and version[3] and not present else "changed"

    def rows(self) -> dict[str, Row]:
        """Return the table."""
        found = {}
        for key in sorted(self.seen):
            version, row = self.holds(key)
            if not version[3]:
                found[key] = {
                    "event_time": version[0],
                    "revision": self.revisions[key],
                    "v": row.get("v"),
                    "s": row.get("s"),
                }
        return found

    def holds(self, key: str) -> tuple[Version, Row]:
        """Return the greatest version of a key."""
        return max(self.seen[key], key=lambda found: self.rank(found[0]))

    def rank(self, version: Version) -> tuple[Any, ...]:
        time, offset, *rest = version
        return (offset, time, *rest) if self.by_offset else version

    def version(self, row: Row) -> Version:
        gone = bool(row.get("deleted"))
        return (
            row["time_us"],
            row.get("offset") or 0,
            (row.get("eid") or "").encode(),
            gone,
            b"" if gone else value_bytes(row),
        )

    def is_refused(self, time: int) -> bool:
        """Say whether an update of this time may be older than a deletion that is forgotten."""
        if self.by_offset or self.horizon is None or self.last_delete is None:
            return False
        return time < self.horizon and time <= self.last_delete

    def advance(self, accepted: Sequence[Row], deleted: Sequence[int]) -> None:
        self.batches += 1
        times = [row["time_us"] for row in accepted]
        known = [t for t in (self.watermark, *times) if t is not None]
        self.watermark = max(known, default=None)
        if self.watermark is not None:
            reached = self.watermark - self.retention
            self.horizon = reached if self.horizon is None else max(self.horizon, reached)
        if not self.by_offset:
            self.last_delete = max((t for t in (self.last_delete, *deleted) if t is not None), default=None)
