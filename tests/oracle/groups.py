"""Groups written from docs/rules.md, rules 313 to 319: it keeps every event of each key, and computes the rows from all of them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = tuple[Any, ...]
Change = tuple[Any, ...]
"""op, key, event_count, and of an upsert the values."""


class TakenBackError(Exception):
    """More events of a key are taken back than there are."""


@dataclass
class Groups:
    """The groups of one pipeline; `values` computes a row's values from a list of events.

    `state` computes all that the aggregates keep; without one that is the values.
    """

    values: Callable[[list[Event]], tuple[Any, ...]]
    state: Callable[[list[Event]], Any] | None = None
    events: dict[str, Counter[Event]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    batches: int = 0

    def batch(
        self, given: Sequence[tuple[str, Event, int]], removed: Sequence[tuple[str, int]] = ()
    ) -> tuple[list[Change], int]:
        """Take a batch of (key, event, 1 or -1), and tombstones (key, revision); return its changes, by key, and how many tombstones were stale."""
        before = {key: self.kept(key) for key in self.events}
        gone = {key for key, revision in removed if self.revisions.get(key) == revision}
        after = {key: Counter() if key in gone else Counter(events) for key, events in self.events.items()}
        for key, event, sign in given:
            after.setdefault(key, Counter())[event] += sign
        if any(events.total() < 0 for events in after.values()):
            raise TakenBackError
        self.events = {key: events for key, events in after.items() if events.total()}
        changes: list[Change] = []
        for key in sorted(after):
            if key in self.events and (key in gone or self.kept(key) != before.get(key)):
                changes.append(("upsert", key, *self.row(key)))
                self.revisions[key] = self.batches
            elif key in before and key not in self.events:
                changes.append(("delete", key, 0))
                del self.revisions[key]
        self.batches += 1
        return changes, len(removed) - len(gone)

    def row(self, key: str) -> tuple[Any, ...]:
        """Return event_count and the values of a key."""
        events = list(self.events[key].elements())
        return self.events[key].total(), *self.values(events)

    def kept(self, key: str) -> Any:
        """Return what a batch must change for a row to be written."""
        return self.row(key) if self.state is None else (self.row(key), self.state(list(self.events[key].elements())))

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows, by key."""
        return [(key, *self.row(key)) for key in sorted(self.events)]
