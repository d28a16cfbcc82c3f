"""A store beside a dict: random writes, expiry, reopening, and a process that is killed between writes."""

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

from sessionlake.store.interface import StoredSession, Windowed
from sessionlake.store.segmented import WRITE_SCHEMA, SegmentedSessionStore
from tests.support import examples

INTERVAL = 50
NAMES = ["", "a", "b", "é"]
keys = st.sampled_from(NAMES)
times = st.integers(-60, 300)
WRITER = """
import sys, time
from pathlib import Path
import numpy as np, pyarrow as pa
from sessionlake.store.interface import StoredSession, Windowed
from sessionlake.store.segmented import SegmentedSessionStore
store = SegmentedSessionStore(Path(sys.argv[1]), 50)
for key, start, end, state in eval(sys.stdin.readline()):
    store.put(StoredSession(Windowed(key, start, end), 1, 2, state))
print("written", flush=True)
time.sleep(60)
"""


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "db"
        self.store: Any = None
        self.model: dict[tuple[str, int, int], tuple[int, int, bytes]] = {}
        self.reopen()

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()

    @rule(key=keys, end=times, length=st.integers(0, 120), state=st.binary(max_size=5), revision=st.integers(0, 9))
    def put(self, key: str, end: int, length: int, state: bytes, revision: int) -> None:
        self.store.put(StoredSession(Windowed(key, end - length, end), length, revision, state))
        self.model[key, end - length, end] = (length, revision, state)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(sorted(self.model)))
        self.store.remove(Windowed(*window))
        del self.model[window]

    @rule(key=keys, start=times, end=times)
    def remove_what_may_be_missing(self, key: str, start: int, end: int) -> None:
        self.store.remove(Windowed(key, start, end))
        self.model.pop((key, start, end), None)

    @rule(oldest=times)
    def expire(self, oldest: int) -> None:
        segment = oldest // INTERVAL
        self.store.apply(WRITE_SCHEMA.empty_table(), {}, oldest)
        self.model = {window: v for window, v in self.model.items() if window[2] // INTERVAL >= segment}

    @rule()
    def reopen(self) -> None:
        if self.store is not None:
            self.store.close()
        self.store = SegmentedSessionStore(self.path, INTERVAL)

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.model = {}

    @rule(rows=st.lists(st.tuples(keys, times, st.binary(max_size=4)), min_size=1, max_size=3))
    def kill_a_writer(self, rows: list[tuple[str, int, bytes]]) -> None:
        self.store.close()
        writes = [(key, end - 5, end, state) for key, end, state in rows]
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(self.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write(repr(writes) + "\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "written\n"
            os.kill(writer.pid, signal.SIGKILL)
        for key, start, end, state in writes:
            self.model[key, start, end] = (1, 2, state)
        self.store = SegmentedSessionStore(self.path, INTERVAL)

    @rule(low=st.none() | keys, high=st.none() | keys, earliest=times, latest=times)
    def find_in_a_range(self, low: str | None, high: str | None, earliest: int, latest: int) -> None:
        named = [n for n in NAMES if (low is None or n >= low) and (high is None or n <= high)]
        expected = [row for name in named for row in self.rows(name) if row[2] >= earliest and row[1] <= latest]
        assert plain(self.store.find_sessions_range(low, high, earliest, latest)) == expected
        assert plain(self.store.backward_find_sessions_range(low, high, earliest, latest)) == expected[::-1]

    @rule(key=keys, earliest=times, latest=times)
    def find(self, key: str, earliest: int, latest: int) -> None:
        expected = [row for row in self.rows(key) if row[2] >= earliest and row[1] <= latest]
        assert plain(self.store.find_sessions(key, earliest, latest)) == expected
        assert plain(self.store.backward_find_sessions(key, earliest, latest)) == expected[::-1]

    @invariant()
    def every_key_has_its_sessions(self) -> None:
        for key in NAMES:
            assert plain(self.store.fetch(key)) == self.rows(key)

    def rows(self, key: str) -> list[tuple[Any, ...]]:
        mine = [(*window, *value) for window, value in self.model.items() if window[0] == key]
        return sorted(mine, key=lambda row: (row[2], row[1]))


def plain(found: Any) -> list[tuple[Any, ...]]:
    windows = ((s.window, s) for s in found)
    return [(w.key, w.start_us, w.end_us, s.event_count, s.revision, s.state) for w, s in windows]


class SlowStoreMachine(StoreMachine):
    pass


StoreMachine.TestCase.settings = settings(examples(4), stateful_step_count=15)
SlowStoreMachine.TestCase.settings = settings(examples(40), stateful_step_count=15)
TestStoreMachine = StoreMachine.TestCase
TestSlowStoreMachine = pytest.mark.slow(SlowStoreMachine.TestCase)
