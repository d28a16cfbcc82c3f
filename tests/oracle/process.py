"""Processors as one loop in plain Python, from docs/rules.md, rules 340 to 355. Shares no helper with the package.

The user's class is called with stores and timers of this module, whose content is copied before each call.
"""

import copy
import json
from typing import Any

FAR = 1 << 59
YEAR = 253_402_300_799_999_999


class Store(dict):  # type: ignore[type-arg]
    """Entries of one key; what is read is a copy, as of JSON."""

    def __getitem__(self, name: str) -> Any:
        return json.loads(super().__getitem__(name))

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, json.dumps(value))

    def __deepcopy__(self, memo: Any) -> "Store":
        found = Store()
        for name, text in dict.items(self):
            dict.__setitem__(found, name, text)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (get is this)

    def pop(self, name: str) -> Any:
        return json.loads(super().pop(name))


class Clockwork:
    """The timers of one key: name to (time, by the clock)."""

    def __init__(self, clock: int) -> None:
        self.pending: dict[str, tuple[int, bool]] = {}
        self.clock_us = clock
        self.fired: Any = None

    def set(self, at: int, name: str = "") -> None:
        self._set(at, name, clock=False)

    def set_clock(self, at: int, name: str = "") -> None:
        self._set(at, name, clock=True)

    def _set(self, at: int, name: str, *, clock: bool) -> None:
        if self.fired is not None and self.fired.clock == clock and at <= self.fired.at_us:
            raise ValueError("not later")
        self.pending[name] = (at, clock)

    def cancel(self, name: str = "") -> None:
        self.pending.pop(name, None)

    def get(self, name: str = "") -> Any:
        return Fired(name, self.pending[name]) if name in self.pending else None

    def __iter__(self) -> Any:
        return iter(self.pending)

    def __len__(self) -> int:
        return len(self.pending)


class Fired:
    def __init__(self, name: str, timer: tuple[int, bool]) -> None:
        self.name = name
        self.at_us, self.clock = timer


class Memory:
    """What a key has: entries by store, timers, and what names its rows."""

    def __init__(self) -> None:
        self.stores: dict[str, Store] = {}
        self.timers: dict[str, tuple[int, bool]] = {}
        self.position = self.ordinal = self.touched = 0

    def empty(self) -> bool:
        return not self.timers and not any(self.stores.values())

    def size(self) -> int:
        entries = [(name, text) for store in self.stores.values() for name, text in dict.items(store)]
        compact = sum(len(name) + len(json.dumps(json.loads(text), separators=(",", ":"))) for name, text in entries)
        return compact + 64 * len(self.timers)


class Opened:
    """The context: stores by name."""

    def __init__(self) -> None:
        self.names = [""]
        self.handles: dict[str, Handle] = {"": Handle()}

    def key_value_store(self, name: str) -> Any:
        return self.handles.setdefault(name, Handle())


class Handle:
    """A store that has the entries of the key at hand."""

    store: Store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def __getitem__(self, name: str) -> Any:
        return self.store[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.store[name] = value

    def __delitem__(self, name: str) -> None:
        del self.store[name]

    def __contains__(self, name: str) -> bool:
        return name in self.store


class Machine:
    """Batches of a stream; `sent` rows are (key, time, position, ordinal, values)."""

    def __init__(
        self, processor: type, types: dict[str, type], retention: int, grace: int, largest: int = 1 << 20
    ) -> None:
        self.processor, self.types = processor, types
        self.retention, self.grace, self.largest = retention, grace, largest
        self.memory: dict[str, Memory] = {}
        self.watermark = -FAR
        self.limit = -FAR
        self.clock = -FAR
        self.accepted: dict[int, int] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.dead: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int, str]] = []

    def batch(self, rows: list[dict[str, Any]], clock: int = 0, reset: tuple[str, ...] = ()) -> None:
        expired = self.watermark - self.retention
        self.clock = max(self.clock, clock)
        own: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        newest = self.watermark
        for row in sorted(rows, key=lambda r: r.get("partition", 0)):
            if row["time_us"] < expired:
                self.dead.append((row["key"], row["time_us"]))
                continue
            partition = row.get("partition", 0)
            self.accepted[partition] = self.accepted.get(partition, 0) + 1
            position = (partition << 40) + self.accepted[partition]
            own.setdefault(row["key"], []).append((position, row))
            newest = max(newest, row["time_us"])
        self.watermark = newest
        self.limit = max(self.limit, newest - self.grace if newest > -FAR else -FAR)
        for key in reset:
            self.memory.pop(key, None)
        self.opened = Opened()
        self.user = self.processor()
        self.user.open(self.opened)
        for key in sorted({*own, *self.memory}):
            memory = self.memory.setdefault(key, Memory())
            for position, row in own.get(key, []):
                memory = self.passed(key, memory, row["time_us"])
                values = {name: value for name, value in row.items() if name not in ("key", "partition")}
                new = copy.deepcopy(memory)
                new.touched = row["time_us"] if new.empty() else max(new.touched, row["time_us"])
                new.position, new.ordinal = position, 0
                done = self.call(key, new, lambda t, s, k=key, v=values: self.user.process(k, v, t, s), row["time_us"])
                if done is None:
                    self.dead.append((key, row["time_us"]))
                else:
                    memory = done
            memory = self.passed(key, memory, self.limit)
            while due := sorted((at, name) for name, (at, by) in memory.timers.items() if by and at <= self.clock):
                memory = self.fire(key, memory, due[0][1])
                memory = self.passed(key, memory, self.limit)
            if memory.empty():
                self.memory.pop(key, None)
            else:
                self.memory[key] = memory

    def passed(self, key: str, memory: Memory, time: int) -> Memory:
        """Fire the event-time timers strictly before a time; let state go that nothing touches."""
        while due := sorted((at, name) for name, (at, by) in memory.timers.items() if not by and at < time):
            memory = self.fire(key, memory, due[0][1])
        if not memory.timers and memory.touched + self.retention < time:
            return Memory()
        return memory

    def fire(self, key: str, memory: Memory, name: str) -> Memory:
        at, by_clock = memory.timers[name]
        memory = copy.deepcopy(memory)
        del memory.timers[name]
        if not by_clock:
            memory.touched = max(memory.touched, at)
        fired = Fired(name, (at, by_clock))
        done = self.call(key, copy.deepcopy(memory), lambda t, s: self.user.on_timer(key, at, t, s), at, fired)
        if done is None:
            self.failed.append((key, at, name))
            return memory
        return done

    def call(self, key: str, memory: Memory, method: Any, time: int, fired: Fired | None = None) -> Memory | None:
        """Return what a call leaves; None if it fails."""
        timers = Clockwork(self.clock)
        timers.pending, timers.fired = dict(memory.timers), fired
        for name, handle in self.opened.handles.items():
            handle.store = memory.stores.setdefault(name, Store())
        try:
            rows = list(method(timers, self.opened.handles[""]) or [])
            for row in rows:
                for name, value in row.items():
                    if value is not None and not isinstance(value, self.types[name]):
                        raise TypeError(name)
        except Exception:  # noqa: BLE001 (a user's class raises what it likes)
            return None
        memory.timers = timers.pending
        if memory.size() > self.largest:
            return None
        for row in rows:
            memory.ordinal += 1
            values = {name: row.get(name) for name in self.types}
            self.sent.append((key, time, memory.position, memory.ordinal, values))
        return memory
