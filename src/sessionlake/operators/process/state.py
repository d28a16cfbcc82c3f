"""The state of one key: entries of its stores, timers, and the numbers of its next output row."""

import json
from dataclasses import dataclass, field

from sessionlake.operators.process.api import Timer, order_of


@dataclass
class KeyState:
    """The state after some rows and timers of a key; `KeyRun` changes it in place."""

    position: int = 0
    """Position of the last row that was seen."""
    ordinal: int = 0
    """How many rows were sent since."""
    touched_us: int = 0
    """The greatest time of a row or event-time timer that was seen."""
    entries: dict[str, dict[str, str]] = field(default_factory=dict)
    """By store and name the value as JSON."""
    timers: dict[str, Timer] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing needs to be stored."""
        return not self.timers and not any(self.entries.values())

    @property
    def entry_bytes(self) -> int:
        """Bytes of the entries' names and values, as `max_state_bytes` counts them."""
        return sum(len(name) + len(text) for entries in self.entries.values() for name, text in entries.items())

    def event_us(self, retention_us: int) -> int | None:
        """Return the time of the first event-time timer; of a state without any timer that of its removal."""
        if not self.timers:
            return self.touched_us + retention_us
        return min((t.at_us for t in self.timers.values() if not t.clock), default=None)

    @property
    def clock_us(self) -> int | None:
        """The time of the first clock timer."""
        return min((t.at_us for t in self.timers.values() if t.clock), default=None)

    def packed(self) -> bytes:
        """Return the state as a store has it; equal states have equal bytes."""
        entries = {store: of for store, of in self.entries.items() if of}
        timers = [[t.at_us, t.name, t.clock] for t in sorted(self.timers.values(), key=order_of)]
        found = [self.position, self.ordinal, self.touched_us, entries, timers]
        return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpacked(cls, value: bytes) -> "KeyState":
        """Invert `packed`."""
        position, ordinal, touched_us, entries, timers = json.loads(value)
        return cls(position, ordinal, touched_us, entries, {name: Timer(at, name, clock) for at, name, clock in timers})
