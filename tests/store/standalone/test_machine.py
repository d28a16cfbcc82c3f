"""Stores beside a dict and `sorted`: random writes, time moving on, iterators left open, reopening, writers that are killed.

The model keeps live rows (key, time, rank) only, and knows of retention what docs/rules.md, rule 143 says.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sessionlake.stores import Serdes, Stores, Windowed
from tests.support import examples

RETENTION, INTERVAL = 100, 50
NAMES = ["", "a", "a\0", "b"]
Row = tuple[str, int, int]
keys = st.sampled_from(NAMES)
WRITER = """
import sys, time
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from tests.store.standalone.test_machine import KINDS
kind = KINDS[sys.argv[1]]
store = kind.opened(Path(sys.argv[2]))
for row, value in eval(sys.stdin.readline()):
    kind.put(store, row, value)
print("written", flush=True)
time.sleep(60)
"""


class KeyValues:
    """Rows of a key-value store have time and rank 0."""

    timed = False
    ranked = False

    @staticmethod
    def opened(path: Path | None) -> Any:
        if path is None:
            return Stores.in_memory_key_value_store("store", Serdes.string(), Serdes.int64())
        return Stores.persistent_key_value_store("store", path, Serdes.string(), Serdes.int64())

    @staticmethod
    def put(store: Any, row: Row, value: int | None) -> None:
        store.put(row[0], value)

    @staticmethod
    def get(store: Any, row: Row) -> int | None:
        return store.get(row[0])  # type: ignore[no-any-return]

    @staticmethod
    def iterator(store: Any, *, backward: bool) -> Any:
        return store.reverse_all() if backward else store.all()

    @staticmethod
    def row(key: Any) -> Row:
        return key, 0, 0

    @staticmethod
    def order(row: Row, *, disk: bool) -> Any:  # noqa: ARG004 - as the others
        return row[0].encode()


class Windows:
    timed = True
    ranked = False

    @staticmethod
    def opened(path: Path | None) -> Any:
        if path is None:
            return Stores.in_memory_window_store(
                "store", Serdes.string(), Serdes.int64(), retention=RETENTION, window_size=10
            )
        return Stores.persistent_window_store(
            "store",
            path,
            Serdes.string(),
            Serdes.int64(),
            retention=RETENTION,
            window_size=10,
            segment_interval=INTERVAL,
        )

    @staticmethod
    def put(store: Any, row: Row, value: int | None) -> None:
        store.put(row[0], value, row[1])

    @staticmethod
    def get(store: Any, row: Row) -> int | None:
        return store.fetch_at(row[0], row[1])  # type: ignore[no-any-return]

    @staticmethod
    def iterator(store: Any, *, backward: bool) -> Any:
        return store.backward_all() if backward else store.all()

    @staticmethod
    def row(key: Any) -> Row:
        return key.key, key.start, 0

    @staticmethod
    def order(row: Row, *, disk: bool) -> Any:
        key, start, _ = row
        return (start // INTERVAL, key.encode(), start) if disk else (start, key.encode())


class Sessions:
    timed = True
    ranked = True

    @staticmethod
    def opened(path: Path | None) -> Any:
        if path is None:
            return Stores.in_memory_session_store("store", Serdes.string(), Serdes.int64(), retention=RETENTION)
        return Stores.persistent_session_store(
            "store", path, Serdes.string(), Serdes.int64(), retention=RETENTION, segment_interval=INTERVAL
        )

    @staticmethod
    def put(store: Any, row: Row, value: int | None) -> None:
        store.put(Windowed(row[0], row[2], row[1]), value)

    @staticmethod
    def get(store: Any, row: Row) -> int | None:
        return store.fetch_session(row[0], row[2], row[1])  # type: ignore[no-any-return]

    @staticmethod
    def iterator(store: Any, *, backward: bool) -> Any:
        return store.backward_fetch_range(None, None) if backward else store.fetch_range(None, None)

    @staticmethod
    def row(key: Any) -> Row:
        return key.key, key.end, key.start

    @staticmethod
    def order(row: Row, *, disk: bool) -> Any:
        key, end, start = row
        return (end // INTERVAL, key.encode(), end, start) if disk else (end, key.encode(), -start)


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (KeyValues, Windows, Sessions)}


class Following:
    """An open iterator: what it must still show, and which values a row has had since it was made."""

    def __init__(self, rows: Any, model: dict[Row, int], *, backward: bool) -> None:
        self.rows = rows
        self.backward = backward
        self.must = set(model)
        self.may = {row: {value} for row, value in model.items()}
        self.last: Any = None


class StoreMachine(RuleBasedStateMachine):
    kind: Any
    disk = True
    kills = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.store = self.opened()
        self.model: dict[Row, int] = {}
        self.following: list[Following] = []
        self.now: int | None = None
        self.refused = 0

    def opened(self) -> Any:
        return self.kind.opened(Path(self.directory.name) if self.disk else None)

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()

    def made(self, key: str, back: int, length: int) -> Row:
        time = (self.now or 0) - back
        return key, time if self.kind.timed else 0, time - length if self.kind.ranked else 0

    def modelled(self, row: Row, value: int | None) -> None:
        if value is None:
            self.model.pop(row, None)
            for one in self.following:
                one.must.discard(row)
            return
        time = row[1]
        if self.kind.timed:
            self.now = time if self.now is None else max(self.now, time)
            expired = self.now - RETENTION
            gone = time // INTERVAL < expired // INTERVAL if self.disk else time <= expired
            self.refused += gone
            self.model = {row: value for row, value in self.model.items() if row[1] > expired}
            for one in self.following:
                if self.disk:
                    one.must = {row for row in one.must if row[1] // INTERVAL >= expired // INTERVAL}
            if time <= expired:
                return
        self.model[row] = value
        for one in self.following:
            one.may.setdefault(row, set()).add(value)

    @rule(key=keys, back=st.integers(-60, 180), length=st.integers(0, 90), value=st.integers(0, 9))
    def put(self, key: str, back: int, length: int, value: int) -> None:
        row = self.made(key, back, length)
        self.kind.put(self.store, row, value)
        self.modelled(row, value)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), value=st.none() | st.integers(0, 9))
    def put_again_or_remove(self, data: st.DataObject, value: int | None) -> None:
        row = data.draw(st.sampled_from(sorted(self.model)))
        self.kind.put(self.store, row, value)
        self.modelled(row, value)

    @rule(key=keys, back=st.integers(-60, 180), length=st.integers(0, 90))
    def remove_what_may_be_missing(self, key: str, back: int, length: int) -> None:
        row = self.made(key, back, length)
        self.kind.put(self.store, row, None)
        self.modelled(row, None)

    @precondition(lambda self: self.disk)
    @rule(flush=st.booleans())
    def reopen(self, flush: bool) -> None:  # noqa: FBT001 - drawn
        if flush:
            self.store.flush()
        self.store.close()
        for one in self.following:
            assert list(one.rows) == []
        self.following, self.refused = [], 0
        self.store = self.opened()

    @precondition(lambda self: self.kills)
    @rule(rows=st.lists(st.tuples(keys, st.integers(-60, 180), st.integers(0, 9)), min_size=1, max_size=4))
    def kill_a_writer(self, rows: list[tuple[str, int, int]]) -> None:
        self.reopen(flush=False)
        self.store.close()
        writes = [(self.made(key, back, 5), value) for key, back, value in rows]
        arguments = [sys.executable, "-c", WRITER, self.kind.__name__, self.directory.name, *sys.path]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write(repr(writes) + "\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "written\n"
            os.kill(writer.pid, signal.SIGKILL)
        for row, value in writes:
            self.modelled(row, value)
        self.refused = 0
        self.store = self.opened()

    @rule(backward=st.booleans())
    def open_an_iterator(self, backward: bool) -> None:  # noqa: FBT001 - drawn
        rows = self.kind.iterator(self.store, backward=backward)
        self.following.append(Following(rows, self.model, backward=backward))

    @precondition(lambda self: self.following)
    @rule(data=st.data(), steps=st.integers(1, 6))
    def step_an_iterator(self, data: st.DataObject, steps: int) -> None:
        one = data.draw(st.sampled_from(self.following))
        for _ in range(steps):
            if not one.rows.has_next():
                assert one.must == set()
                self.following.remove(one)
                return
            at = one.rows.peek_next_key()
            key, value = next(one.rows)
            assert key == at
            row = self.kind.row(key)
            place = self.kind.order(row, disk=self.disk)
            assert one.last is None or (place < one.last if one.backward else place > one.last)
            assert value in one.may[row]
            one.last = place
            one.must.discard(row)

    @invariant()
    def it_holds_what_the_model_does(self) -> None:
        ordered = sorted(self.model, key=lambda row: self.kind.order(row, disk=self.disk))
        for backward in (False, True):
            found = [(self.kind.row(key), value) for key, value in self.kind.iterator(self.store, backward=backward)]
            assert found == [(row, self.model[row]) for row in (ordered[::-1] if backward else ordered)]
        for row in ordered[:3]:
            assert self.kind.get(self.store, row) == self.model[row]
        assert self.store.open_iterators == len(self.following)
        assert self.store.dropped_total == self.refused


def machine(of: Any, name: str, *, disk: bool, number: int, kills: bool = False) -> Any:
    made = type(name, (StoreMachine,), {"kind": of, "disk": disk, "kills": kills})
    made.TestCase.settings = settings(examples(number), stateful_step_count=20)
    return made.TestCase


TestKeyValuesOnDisk = machine(KeyValues, "KeyValuesOnDisk", disk=True, number=3)
TestWindowsOnDisk = machine(Windows, "WindowsOnDisk", disk=True, number=3)
TestSessionsOnDisk = machine(Sessions, "SessionsOnDisk", disk=True, number=3)
TestKeyValuesInMemory = machine(KeyValues, "KeyValuesInMemory", disk=False, number=100)
TestWindowsInMemory = machine(Windows, "WindowsInMemory", disk=False, number=100)
TestSessionsInMemory = machine(Sessions, "SessionsInMemory", disk=False, number=100)
TestMoreKeyValues = pytest.mark.slow(machine(KeyValues, "MoreKeyValues", disk=True, number=15, kills=True))
TestMoreWindows = pytest.mark.slow(machine(Windows, "MoreWindows", disk=True, number=15, kills=True))
TestMoreSessions = pytest.mark.slow(machine(Sessions, "MoreSessions", disk=True, number=15, kills=True))


def test_windows_and_their_retention_survive_a_writer_that_is_killed() -> None:
    killed = StoreMachine.__new__(type("Killed", (StoreMachine,), {"kind": Windows}))
    StoreMachine.__init__(killed)
    try:
        killed.put("a", 0, 0, 1)
        killed.kill_a_writer([("a", -60, 2), ("b", -120, 3), ("a", 150, 4)])
        killed.it_holds_what_the_model_does()
        assert killed.model == {("a", 60, 0): 2, ("b", 120, 0): 3}
    finally:
        killed.teardown()
