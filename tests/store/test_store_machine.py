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

from sessionlake.store.segmented import WRITE_SCHEMA
from tests.store.sessions import OneSessionAtATime, Session
from tests.support import examples

INTERVAL = 50
NAMES = ["", "a", "b", "é"]
keys = st.sampled_from(NAMES)
times = st.integers(-60, 300)
WRITER = """
import sys, time
from pathlib import Path
from tests.store.sessions import OneSessionAtATime, Session
store = OneSessionAtATime(Path(sys.argv[1]), 50)
for key, start, end, state in eval(sys.stdin.readline()):
    store.put(Session(key, start, end, 1, 2, state))
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
        self.store.put(Session(key, end - length, end, length, revision, state))
        self.model[key, end - length, end] = (length, revision, state)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        window = data.draw(st.sampled_from(sorted(self.model)))
        self.store.remove(*window)
        del self.model[window]

    @rule(key=keys, start=times, end=times)
    def remove_what_may_be_missing(self, key: str, start: int, end: int) -> None:
        self.store.remove(key, start, end)
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
        self.store = OneSessionAtATime(self.path, INTERVAL)

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
        self.store = OneSessionAtATime(self.path, INTERVAL)

    @rule(earliest=times)
    def scan(self, earliest: int) -> None:
        found = self.store.scan(earliest)[1]
        assert sorted(found.end.tolist()) == sorted(end for _, _, end in self.model if end >= earliest)

    @invariant()
    def every_key_has_its_sessions(self) -> None:
        for key in NAMES:
            mine = [(*window, *value) for window, value in self.model.items() if window[0] == key]
            assert self.store.fetch(key) == sorted(mine, key=lambda row: (row[2], row[1]))


class SlowStoreMachine(StoreMachine):
    pass


StoreMachine.TestCase.settings = settings(examples(4), stateful_step_count=15)
SlowStoreMachine.TestCase.settings = settings(examples(40), stateful_step_count=15)
TestStoreMachine = StoreMachine.TestCase
TestSlowStoreMachine = pytest.mark.slow(SlowStoreMachine.TestCase)
