"""The interface of users' processors: the methods of a class, and the stores and timers that it gets."""

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from sessionlake.warehouse.schemas import YEAR_1_US, YEAR_9999_US

Row = Mapping[str, Any]
"""A row of the source, or one that a processor sends: values by column."""
TIMER_BYTES = 64
"""The size of a timer, as `max_state_bytes` counts it."""


@dataclass(frozen=True)
class Timer:
    """A pending timer, or the one that fires.

    >>> Timer(1_700_000_000_000_000, "pause")
    Timer(at_us=1700000000000000, name='pause', clock=False)
    """

    at_us: int
    """Microseconds since 1970, UTC."""
    name: str = ""
    clock: bool = False
    """Whether it fires by the clock, and not by event time."""


class KeyValueStore(MutableMapping[str, Any]):
    """Entries of one key of the stream, by name; values are those of JSON: None, bool, int, float, str, lists and dicts.

    A value that is read is a copy: to change it, set it again. TypeError for a name that is no text or a value that JSON
    does not have.

    >>> store = KeyValueStore()
    >>> store["steps"] = ["seen", "bought"]
    >>> store.get("visits", 0) + len(store["steps"])
    2
    """

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        self._changed: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> Any:
        text = self._changed[name] if name in self._changed else self._entries[name]
        if text is None:
            raise KeyError(name)
        return json.loads(text)

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"store: an entry's name is text, and {name!r} is not")
        self._changed[name] = as_json(value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._changed[name] = None

    def __contains__(self, name: object) -> bool:
        return self._changed[name] is not None if name in self._changed else name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Yield the names in their order as text."""
        return iter(sorted(name for name in {**self._entries, **self._changed} if name in self))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def begin(self, entries: dict[str, str]) -> None:
        """Take another key's entries, JSON by name; they are changed by `keep`."""
        self._entries, self._changed = entries, {}

    @property
    def growth(self) -> int:
        """The bytes of names and values by which the changed entries are larger than the replaced ones."""
        sizes = ((len(name), self._entries.get(name), text) for name, text in self._changed.items())
        return sum(
            (0 if text is None else name + len(text)) - (0 if old is None else name + len(old))
            for name, old, text in sizes
        )

    def keep(self) -> None:
        """Make the changes part of the entries."""
        for name, text in self._changed.items():
            if text is None:
                self._entries.pop(name, None)
            else:
                self._entries[name] = text
        self._changed = {}

    def undo(self) -> None:
        """Forget the changes since the last `keep`."""
        self._changed = {}


class Timers:
    """The timers of one key, by name. ValueError for a time that `on_timer` may not set.

    >>> timers = Timers()
    >>> timers.set(1_700_000_000_000_000, "pause")
    >>> timers.get("pause").at_us
    1700000000000000
    >>> timers.cancel("pause")
    >>> timers.get("pause") is None
    True
    """

    clock_us: int = 0
    """The batch's clock, which never goes back: the same if the batch is run again."""
    fired: Timer | None = None
    """In `on_timer` the timer that fires."""

    def __init__(self) -> None:
        self._pending: dict[str, Timer] = {}
        self._before: dict[str, Timer] = {}

    def set(self, at_us: int, name: str = "") -> None:
        """Set an event-time timer; a pending timer of the name is replaced."""
        self._set(Timer(at_us, name))

    def set_clock(self, at_us: int, name: str = "") -> None:
        """Set a timer by the clock; a pending timer of the name is replaced."""
        self._set(Timer(at_us, name, clock=True))

    def cancel(self, name: str = "") -> None:
        """Remove the pending timer of the name, if there is one."""
        self._pending.pop(name, None)

    def get(self, name: str = "") -> Timer | None:
        """Return the pending timer of the name; None if there is none."""
        return self._pending.get(name)

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Timer]:
        """Yield the pending timers by time, then by name."""
        return iter(sorted(self._pending.values(), key=order_of))

    def _set(self, timer: Timer) -> None:
        at_us: Any = timer.at_us
        if not isinstance(at_us, int) or isinstance(at_us, bool):
            raise TypeError(f"timers: a time is whole microseconds, and {timer.at_us!r} is not")
        if not isinstance(timer.name, str):
            raise TypeError(f"timers: a name is text, and {timer.name!r} is not")
        if not YEAR_1_US <= timer.at_us <= YEAR_9999_US:
            raise ValueError(f"timers: {timer.at_us} lies outside of the years 1 to 9999")
        fired = self.fired
        if fired is not None and fired.clock == timer.clock and timer.at_us <= fired.at_us:
            raise ValueError(f"timers: on_timer at {fired.at_us} set {timer.at_us}, which is not later")
        self._pending[timer.name] = timer

    def begin(self, pending: Mapping[str, Timer]) -> None:
        """Take another key's timers."""
        self._pending = dict(pending)
        self._before = dict(pending)

    def keep(self) -> dict[str, Timer]:
        """Return the pending timers, which `undo` then returns to."""
        self._before = dict(self._pending)
        return self._before

    def undo(self) -> None:
        """Return to the timers of the last `keep`."""
        self._pending = dict(self._before)


def as_json(value: object) -> str:
    """Return a value of an entry as text; equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def order_of(timer: Timer) -> tuple[int, bytes]:
    """Return the place of a timer among those that are due."""
    return timer.at_us, timer.name.encode("utf-8", "surrogatepass")


class Keys:
    """In `process_table` the keys of the rows, each with its state: arrays have one value a key, in the order of `names`.

    For example, one more visit of each key; "ann" has one already:

    >>> import pyarrow.compute as pc
    >>> keys = Keys(pa.array(["ann", "bob"]), [{"visits": "1"}, {}])
    >>> before = pc.fill_null(keys.get("visits", pa.int64()), 0)
    >>> keys.put("visits", pc.add(before, 1))
    >>> keys.get("visits", pa.int64()).to_pylist()
    [2, 1]
    """

    def __init__(self, names: pa.Array, entries: list[dict[str, str]]) -> None:
        self.names = names
        """The keys, text."""
        self._entries = entries
        self._put: dict[str, list[Any]] = {}
        self._timers: dict[str, list[int | None]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def get(self, name: str, type_: pa.DataType) -> pa.Array:
        """Return the value of an entry for each key; null for a key that has none."""
        if name in self._put:
            return pa.array(self._put[name], type_)
        texts = (entries.get(name) for entries in self._entries)
        return pa.array([None if text is None else json.loads(text) for text in texts], type_)

    def put(self, name: str, values: pa.Array) -> None:
        """Set an entry of each key; null deletes it."""
        self._put[name] = self._listed(values)

    def set_timers(self, at_us: pa.Array, name: str = "") -> None:
        """Set an event-time timer of each key, microseconds; null leaves a key's timer as it is. ValueError outside of the years 1 to 9999."""
        times = self._listed(at_us.cast(pa.int64()))
        outside = next((time for time in times if time is not None and not YEAR_1_US <= time <= YEAR_9999_US), None)
        if outside is not None:
            raise ValueError(f"timers: {outside} lies outside of the years 1 to 9999")
        self._timers[name] = times

    def _listed(self, values: pa.Array) -> list[Any]:
        if len(values) != len(self):
            raise ValueError(f"{len(self)} keys have {len(self)} values, and {len(values)} were given")
        found: list[Any] = values.to_pylist()
        return found

    def changes(self, key: int) -> dict[str, str | None]:
        """Return the entries that were put for a key, by its number: JSON, None for a deleted one."""
        found = {name: values[key] for name, values in self._put.items()}
        return {name: None if value is None else as_json(value) for name, value in found.items()}

    def timers_of(self, key: int) -> dict[str, int]:
        """Return the timers that were set of a key, by its number."""
        found = {name: times[key] for name, times in self._timers.items()}
        return {name: at_us for name, at_us in found.items() if at_us is not None}


class Context:
    """The argument of `open`: the columns of the source and of the output, by type name, and further stores.

    >>> context = Context({"page": "string"}, {"step": "string"})
    >>> context.output
    {'step': 'string'}
    >>> context.key_value_store("steps") is context.key_value_store("steps")
    True
    """

    def __init__(self, columns: Mapping[str, str], output: Mapping[str, str]) -> None:
        self.columns, self.output = dict(columns), dict(output)
        self.stores: dict[str, KeyValueStore] = {"": KeyValueStore()}

    def key_value_store(self, name: str) -> KeyValueStore:
        """Return the store of the name; in `process` and `on_timer` it has the entries of the key that they are called for."""
        if not name:
            raise ValueError("key_value_store: a name is text that is not empty; write for example 'steps'")
        return self.stores.setdefault(name, KeyValueStore())


class Processor:
    """Base of users' classes: a function of a key's rows in their order, its timers and its stores.

    A subclass has a constructor without arguments. One object is made for each shard and batch.

    >>> class Visits(Processor):
    ...     def process(self, key, row, timers, store):
    ...         store["n"] = store.get("n", 0) + 1
    ...         yield {"visits": store["n"]}
    """

    vectorised: ClassVar[bool] = False
    """Whether `process_table` is called, and not `process`."""

    def open(self, context: Context) -> None:
        """Get ready: ask for further stores. Called once, before anything else."""

    def process(self, key: str, row: Row, timers: Timers, store: KeyValueStore) -> Iterable[Row] | None:
        """Return or yield the rows that follow from one row; `row["time_us"]` is its time in microseconds."""
        raise NotImplementedError

    def process_table(self, rows: pa.Table, keys: Keys) -> pa.Table | None:
        """Return the rows that follow from rows of many keys, with a column `row`: the number of the row that each is of.

        `rows` are by key and then in the order of the source, with the columns key, time_us, group (the number of the key
        among `keys`), and those of the source.
        """
        raise NotImplementedError

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Iterable[Row] | None:
        """Return or yield the rows that follow from a timer; `timers.fired` is the timer."""
        raise NotImplementedError
