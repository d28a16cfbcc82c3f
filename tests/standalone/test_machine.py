"""Any calls, with flushes, crashes and replays between them, give what the same calls give without."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.standalone.kinds import JOINS, WINDOWS, aggregator, join, messages
from tests.standalone.support import Row
from tests.support import examples

KINDS = [*WINDOWS, "sessions", *(f"join, {kind}" for kind in JOINS)]
SCHEMA = pa.schema([("key", pa.string()), ("time_us", pa.int64()), ("v", pa.int64())])


class StandaloneMachine(RuleBasedStateMachine):
    """`run` is flushed, and goes down; `steady` never is."""

    @initialize(kind=st.sampled_from(KINDS))
    def open(self, kind: str) -> None:
        self.kind, self.directory = kind, tempfile.TemporaryDirectory()
        self.root = Path(self.directory.name)
        self.run, self.steady = self.opened("run"), self.opened("steady")
        self.sent: list[Row] = []
        """What was fetched before a flush."""
        self.since: list[tuple[Any, ...]] = []
        """The calls since the last flush."""
        self.number = 0
        self.flushed: dict[int, int] = {}

    def opened(self, name: str) -> Any:
        if self.kind.startswith("join, "):
            return join(self.kind.removeprefix("join, "), self.root / name)
        keep: Any = 50 if self.kind.startswith("count") else True
        return aggregator(self.kind, self.root / name, keep_messages=keep)

    def teardown(self) -> None:
        if hasattr(self, "run"):
            self.run.close()
            self.steady.close()
            self.directory.cleanup()

    def call(self, run: Any, name: str, side: str, given: Any, options: Row) -> None:
        getattr(run, name)(
            *([side] if self.kind.startswith("join, ") and given is not None else []),
            *([] if given is None else [given]),
            **options,
        )

    def both(self, *call: Any) -> None:
        for run in (self.run, self.steady):
            self.call(run, *call)
        self.since.append(call)

    @rule(message=messages, side=st.sampled_from(["left", "right"]))
    def add(self, message: Row, side: str) -> None:
        self.number += 1
        given = {"position": self.number, "partition": message["partition"], "clock_us": self.number * 3}
        self.both("add_message", side, message, given)

    @rule(rows=st.lists(messages, min_size=1, max_size=5), side=st.sampled_from(["left", "right"]))
    def add_table(self, rows: list[Row], side: str) -> None:
        positions = list(range(self.number + 1, self.number + 1 + len(rows)))
        self.number += len(rows)
        partitions = [row["partition"] for row in rows]
        given = {"positions": positions, "partitions": partitions, "clock_us": self.number * 3}
        self.both("add_messages", side, pa.Table.from_pylist(rows, schema=SCHEMA), given)

    @rule()
    def timeout(self) -> None:
        self.number += 1
        self.both("timeout", "", None, {"clock_us": self.number * 3})

    @rule()
    def flush(self) -> None:
        self.sent += self.run.get_result()
        self.run.flush()
        self.since.clear()

    @rule()
    def crash(self) -> None:
        """What was not flushed is gone, and comes back, the same, with the calls."""
        result = self.run.get_result()
        self.run.close()
        self.run = self.opened("run")
        assert self.run.get_result() == []
        for call in self.since:
            self.call(self.run, *call)
        assert self.run.get_result() == result

    @rule()
    def replay(self) -> None:
        for call in self.since:
            if call[0] != "timeout":
                self.call(self.run, *call)

    @rule()
    def queries_are_the_same(self) -> None:
        sides = ["left", "right"] if self.kind.startswith("join, ") else [None]
        for side in sides:
            of = [] if side is None else [side]
            for query in ("get_windows", "get_messages"):
                found = [getattr(run, query)(*of, -(1 << 42), 1 << 42) for run in (self.run, self.steady)]
                assert found[0] == found[1]

    @invariant()
    def outputs_are_the_same(self) -> None:
        if hasattr(self, "run"):
            assert self.sent + self.run.get_result() == self.steady.get_result()


class SlowStandaloneMachine(StandaloneMachine):
    pass


StandaloneMachine.TestCase.settings = settings(examples(6), stateful_step_count=12)
SlowStandaloneMachine.TestCase.settings = settings(examples(100), stateful_step_count=30)
TestStandaloneMachine = StandaloneMachine.TestCase
TestSlowStandaloneMachine = pytest.mark.slow(SlowStandaloneMachine.TestCase)
