"""Key-value, window and session stores in Python, on disk or in memory, without Spark: those of Kafka Streams.

Made by `Stores`, with serdes of `Serdes`; which to choose, and examples that are run, are in docs/stores.md.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from sessionlake.store.standalone.base import K, StoreOfRows, V
from sessionlake.store.standalone.expiring import MemoryExpiringRows, RocksExpiringRows
from sessionlake.store.standalone.interface import (
    KeyValueStore,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    SessionStore,
    StateStore,
    Windowed,
    WindowStore,
)
from sessionlake.store.standalone.iterators import OpenIterators, StoreIterator
from sessionlake.store.standalone.key_value import KeyValueStoreOfRows, RocksRows
from sessionlake.store.standalone.keys import SESSION_KEYS, WINDOW_KEYS, Duration, Time, Unit, units
from sessionlake.store.standalone.logged import Sink, logged
from sessionlake.store.standalone.memory import LruRows, MemoryRows, MemoryTimedRows
from sessionlake.store.standalone.segmented import SegmentedRows
from sessionlake.store.standalone.serdes import Lazy, Serde, Serdes
from sessionlake.store.standalone.sessions import SessionStoreOfRows
from sessionlake.store.standalone.windows import WindowSettings, WindowStoreOfRows

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.serve.replica import Replica

__all__ = [
    "Clock",
    "Duration",
    "KeyValueStore",
    "Lazy",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "Serde",
    "Serdes",
    "SessionStore",
    "Sink",
    "StateStore",
    "StoreIterator",
    "Stores",
    "Time",
    "Unit",
    "WindowStore",
    "Windowed",
    "change_logged",
    "open_replica",
]

S = TypeVar("S", bound=StateStore)
Clock = Callable[[], Time]
"""Gives the time, as all times of a store."""


class Stores:
    """Creates and opens stores.

    A persistent store lies in `directory/name`, which is made if it is missing, and is open once at a time. Entries are kept as
    bytes in all of them. `retention`, `window_size` and `segment_interval` are texts ("7 days") or whole numbers of `unit`. All times
    of a store are in its `unit`. ValueError for invalid arguments; StoreError for a directory that holds anything else, or a store that
    was made with other arguments; StoreHeldError for a store that is open.

    >>> with Stores.in_memory_key_value_store("totals", Serdes.string(), Serdes.int64()) as totals:
    ...     totals.put("ann", 3)
    ...     totals.get("ann")
    3
    """

    @staticmethod
    def persistent_key_value_store(
        name: str,
        directory: str | Path,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        ttl: Duration | None = None,
        clock: Clock | None = None,
        unit: Unit = "us",
    ) -> KeyValueStore[K, V]:
        """Open a key-value store on disk; with `ttl` a row is missing once it was written that long ago, or longer.

        `clock` returns the time, a whole number of `unit` or a datetime with a time zone. Without it the machine's clock is read.

        >>> from tempfile import TemporaryDirectory
        >>> now = 0
        >>> with (
        ...     TemporaryDirectory() as directory,
        ...     Stores.persistent_key_value_store(
        ...         "logins", directory, Serdes.string(), Serdes.string(), ttl="10 minutes", clock=lambda: now, unit="s"
        ...     ) as logins,
        ... ):
        ...     logins.put("ann", "paris")
        ...     now = 599
        ...     first = logins.get("ann")
        ...     now = 600
        ...     first, logins.get("ann")
        ('paris', None)
        """
        path = _path(name, directory)
        kept = _ttl(ttl, clock, unit)
        rows = RocksRows(path) if kept is None else RocksExpiringRows(path, *kept, units(unit).minute, {"unit": unit})
        return KeyValueStoreOfRows(name, rows, key_serde, value_serde)

    @staticmethod
    def in_memory_key_value_store(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        ttl: Duration | None = None,
        clock: Clock | None = None,
        unit: Unit = "us",
    ) -> KeyValueStore[K, V]:
        """Return a key-value store in memory; `ttl` and `clock` as in `persistent_key_value_store`.

        >>> with Stores.in_memory_key_value_store("totals", Serdes.string(), Serdes.int64()) as totals:
        ...     totals.put("bob", 4)
        ...     totals.put("ann", 3)
        ...     list(totals.all())
        [('ann', 3), ('bob', 4)]
        """
        kept = _ttl(ttl, clock, unit)
        rows = MemoryRows() if kept is None else MemoryExpiringRows(*kept)
        return KeyValueStoreOfRows(name, rows, key_serde, value_serde)

    @staticmethod
    def lru_map(
        name: str,
        max_cache_size: int,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        on_evicted: Callable[[K, V], None] | None = None,
    ) -> KeyValueStore[K, V]:
        """Return a key-value store in memory that keeps the `max_cache_size` keys used last; `on_evicted` gets each evicted row.

        >>> evicted = []
        >>> cache = Stores.lru_map(
        ...     "cache", 1, Serdes.string(), Serdes.int64(), on_evicted=lambda key, value: evicted.append((key, value))
        ... )
        >>> cache.put("ann", 3)
        >>> cache.put("bob", 4)
        >>> evicted
        [('ann', 3)]
        """
        if max_cache_size < 1:
            raise ValueError(f"max_cache_size: {max_cache_size} keeps no key; give 1 or more")
        rows = LruRows(max_cache_size)
        if on_evicted is not None:
            rows.evicted = lambda key, data: on_evicted(key_serde.deserialize(key), value_serde.deserialize(data))
        return KeyValueStoreOfRows(name, rows, key_serde, value_serde)

    @staticmethod
    def persistent_window_store(
        name: str,
        directory: str | Path,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        segment_interval: Duration | None = None,
        unit: Unit = "us",
    ) -> WindowStore[K, V]:
        """Open a window store on disk.

        `segment_interval` is by default half the retention, a minute at least. It is fixed when the store is created.

        >>> from tempfile import TemporaryDirectory
        >>> with (
        ...     TemporaryDirectory() as directory,
        ...     Stores.persistent_window_store(
        ...         "traces", directory, Serdes.string(), Serdes.int64(), retention="1 hour", window_size="1 minute", unit="s"
        ...     ) as traces,
        ... ):
        ...     traces.put("a", 7, 60)
        ...     traces.fetch_at("a", 60)
        7
        """
        kept, settings = _window_settings(retention, window_size, unit, retain_duplicates=retain_duplicates)
        rows = SegmentedRows(
            _path(name, directory),
            WINDOW_KEYS,
            kind="window",
            retention=kept,
            interval=None
            if segment_interval is None
            else settings.units.duration(segment_interval, "segment_interval"),
            default_interval=max(kept // 2, settings.units.minute),
            settings={"unit": unit, "retain_duplicates": retain_duplicates},
        )
        return WindowStoreOfRows(name, rows, key_serde, value_serde, settings)

    @staticmethod
    def in_memory_window_store(
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        unit: Unit = "us",
    ) -> WindowStore[K, V]:
        """Return a window store in memory.

        >>> with Stores.in_memory_window_store(
        ...     "traces", Serdes.string(), Serdes.int64(), retention="1 hour", window_size="1 minute", unit="s"
        ... ) as traces:
        ...     traces.put("a", 7, 60)
        ...     traces.fetch_at("a", 60)
        7
        """
        kept, settings = _window_settings(retention, window_size, unit, retain_duplicates=retain_duplicates)
        iterators = OpenIterators()
        rows = MemoryTimedRows(WINDOW_KEYS, kept, iterators.pinned)
        return WindowStoreOfRows(name, rows, key_serde, value_serde, settings, iterators)

    @staticmethod
    def persistent_session_store(
        name: str,
        directory: str | Path,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        retention: Duration,
        segment_interval: Duration | None = None,
        unit: Unit = "us",
    ) -> SessionStore[K, V]:
        """Open a session store on disk; `segment_interval` as in `persistent_window_store`.

        >>> from tempfile import TemporaryDirectory
        >>> with (
        ...     TemporaryDirectory() as directory,
        ...     Stores.persistent_session_store(
        ...         "visits", directory, Serdes.string(), Serdes.int64(), retention="1 hour", unit="s"
        ...     ) as visits,
        ... ):
        ...     visits.put(Windowed("ann", 0, 99), 5)
        ...     list(visits.find_sessions("ann", 50, 200))
        [(Windowed(key='ann', start=0, end=99), 5)]
        """
        settings = units(unit)
        kept = settings.duration(retention, "retention")
        rows = SegmentedRows(
            _path(name, directory),
            SESSION_KEYS,
            kind="session",
            retention=kept,
            interval=None if segment_interval is None else settings.duration(segment_interval, "segment_interval"),
            default_interval=max(kept // 2, settings.minute),
            settings={"unit": unit},
        )
        return SessionStoreOfRows(name, rows, key_serde, value_serde, settings)

    @staticmethod
    def in_memory_session_store(
        name: str, key_serde: Serde[K], value_serde: Serde[V], *, retention: Duration, unit: Unit = "us"
    ) -> SessionStore[K, V]:
        """Return a session store in memory.

        >>> with Stores.in_memory_session_store(
        ...     "visits", Serdes.string(), Serdes.int64(), retention="1 hour", unit="s"
        ... ) as visits:
        ...     visits.put(Windowed("ann", 0, 99), 5)
        ...     list(visits.find_sessions("ann", 50, 200))
        [(Windowed(key='ann', start=0, end=99), 5)]
        """
        settings = units(unit)
        iterators = OpenIterators()
        rows = MemoryTimedRows(
            SESSION_KEYS, settings.duration(retention, "retention"), iterators.pinned, ranks_descend=True
        )
        return SessionStoreOfRows(name, rows, key_serde, value_serde, settings, iterators)


def change_logged(store: S, sink: Sink) -> S:
    """Log a store's changes from here on: `sink(key, value)` gets the bytes of each row that was put, None for one removed.

    It is called after the change, once for each. A row that is refused as expired is not logged. A row that an LRU map evicts is logged
    as removed. `store.restore(records)` takes the same pairs, also into another variant of the same kind of store: their bytes are equal.

    >>> log = []
    >>> store = change_logged(
    ...     Stores.in_memory_key_value_store("totals", Serdes.string(), Serdes.string()),
    ...     lambda key, value: log.append((key, value)),
    ... )
    >>> store.put("ann", "x")
    >>> _ = store.delete("ann")
    >>> log[0][0], log[1]
    (b'ann', (b'ann', None))
    """
    if not isinstance(store, StoreOfRows):
        raise ValueError(f"change_logged: {type(store).__name__} is none of `Stores`; log its changes yourself")  # noqa: TRY004
    store.rows = logged(store.rows, sink)
    return cast("S", store)


def open_replica(config: "Config") -> "Replica":
    """Return a pipeline's local stores of sessions, windows by time or table rows, as of the last batch.

    `refresh()` reads the batches after it.

    It reads next to the stream and changes nothing. NoBatchesError if there is no batch yet, ConfigError for a pipeline
    that computes something else.
    """
    from sessionlake.serve.replica import Replica  # noqa: PLC0415 (stores of one's own need no config)

    replica = Replica(config)
    replica.refresh()
    return replica


def _path(name: str, directory: str | Path) -> Path:
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"name: {name!r} is no name of a directory; choose one without slashes")
    return Path(directory) / name


def _ttl(ttl: Duration | None, clock: Clock | None, unit: Unit) -> tuple[int, Callable[[], int]] | None:
    """Return the time to live and the clock in a unit; None if rows stay."""
    of_unit = units(unit)
    if ttl is None:
        if clock is not None:
            raise ValueError("clock: is of stores with ttl; give ttl, or leave the clock out")
        return None
    read = clock or (lambda: time.time_ns() // 1000 // of_unit.microseconds)
    return of_unit.duration(ttl, "ttl"), lambda: of_unit.time(read())


def _window_settings(
    retention: Duration, window_size: Duration, unit: Unit, *, retain_duplicates: bool
) -> tuple[int, WindowSettings]:
    """Return the retention and the rest, in the store's unit."""
    of_unit = units(unit)
    kept, size = of_unit.duration(retention, "retention"), of_unit.duration(window_size, "window_size")
    if kept < size:
        raise ValueError(f"retention: {retention!r} is shorter than window_size {window_size!r}; give at least that")
    return kept, WindowSettings(of_unit, size, retain_duplicates)
