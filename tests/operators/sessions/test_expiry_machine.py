"""Sessions that expire, as a state machine beside the model: by the engine's own shard tasks, and read beside them by a replica.

Hypothesis picks events in any order, clocks that go back, stores that are lost, tasks that die before the commit, other numbers of
shards and other sections [ttl].
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sessionlake.config.load import parse_config
from sessionlake.config.times import format_time
from sessionlake.engine import shard
from sessionlake.operators.sessions import expiring, ttl
from sessionlake.operators.sessions.earlier import as_keys
from sessionlake.operators.sessions.section import session_ttl_section
from sessionlake.serve.replica import Replica
from tests.engine.task_shards import DiedError, TaskShards
from tests.operators.sessions.expiring import RULES, expiring_pair
from tests.operators.sessions.strategies import (
    LIMITS,
    SLOW_FACTOR,
    Config,
    Draft,
    Event,
    Moment,
    Resolver,
    canonical_outcome,
    canonical_session,
    configs,
    events,
    microseconds,
    rows,
    subject,
)
from tests.serve.replica_support import log_commit, micros
from tests.support import examples

EXAMPLES = 12
MEASURED = ("cleanup_us", "state_scan_us")
SECTIONS = st.tuples(
    st.sampled_from(RULES),
    st.sampled_from(["time_boxed", "time_boxed", "scan"]),
    st.integers(0, 6),
    st.sampled_from([1, 3]),
    st.sampled_from([False, False, True]),
)
"""Rule, pattern, age and `every` in units, and whether the clock is the watermark."""


class ExpiringMachine(RuleBasedStateMachine):
    directory: Any = None
    is_read = False
    """Whether a replica reads beside the tasks, which open and close their stores for it as the engine's do: ten times as slow."""

    @initialize(
        config=st.sampled_from(LIMITS).flatmap(lambda limits: configs(shards=(1, 3), limits=limits)),
        section=SECTIONS,
        budget=st.integers(1, 3),
        page=st.integers(1, 3),
        longer=st.sampled_from([100, 100, 10, 0]),
    )
    def open(self, config: Config, section: Any, budget: int, page: int, longer: int) -> None:
        # Else few sessions are closed and not yet cold.
        config = replace(config, retention=config.retention + longer * config.unit)
        self.directory, self.stack, self.config, self.budget = TemporaryDirectory(), ExitStack(), config, budget
        self.root, self.clock, self.batch_id = Path(self.directory.name), config.base, -1
        for of, name, value in (
            (ttl, "budget", lambda *_: budget),
            (expiring, "PAGE", page),
            (shard, "_WRITTEN_AT_A_TIME", page),
        ):
            self.stack.enter_context(patch.object(of, name, value))
        self.model = expiring_pair(config, "ttl", "scan", 0, 1, stream=False)[1]
        self.resolver, self.harness = Resolver(config), subject(config)
        self.stack.callback(self.harness.close)
        self.shards = TaskShards(
            config.shards,
            self.root / "store/p",
            lambda: self.harness._tables.stored(self.harness._operator, self.harness._state),
            stay_open=not self.is_read,
        )
        self.harness._shards = self.shards
        self.replica = Replica(self.reading())
        self.shown: Any = None
        self.waiting: dict[Any, tuple[int, set[Any]]] = {}
        self.change(section)

    def reading(self) -> Any:
        """Return the config by which the stores are read."""
        config = self.config
        session: dict[str, Any] = {name: microseconds(getattr(config, name)) for name in ("gap", "grace", "retention")}
        if config.max_gap is not None:
            session |= {"gap_by": "g * interval 1 microsecond", "max_gap": microseconds(config.max_gap)}
        if config.max_length is not None:
            offset = {"max_length_offset": microseconds(config.offset)} if config.offset else {}
            session |= {"max_length": microseconds(config.max_length), **offset}
        if config.before:
            session["before"] = [
                {key: value for key, value in {"until": format_time(limits[0]), **as_keys(limits)}.items() if value}
                for limits in config.before
            ]
        raw = {
            "pipeline": {"name": "p", "warehouse": "lake", "store": "store", "shards": config.shards},
            "source": {"kind": "files", "path": "events", "format": "json"},
            "event": {"key": "key", "time": "time_us", "time_unit": "us", "id": "id"},
            "aggregates": config.aggregates,
            "session": session,
        }
        return parse_config(raw, self.root)

    @rule(drafts=st.lists(events("abcdef"), max_size=8), step=st.integers(-6, 12))
    def send_events(self, drafts: list[Draft], step: int) -> None:
        self.batch(drafts, step)

    @rule(drafts=st.lists(rows("abcdef"), max_size=5), step=st.integers(0, 3))
    def send_both(self, drafts: list[Draft], step: int) -> None:
        self.batch(drafts, step)

    @rule(keys=st.lists(st.sampled_from("abcdef"), min_size=2, max_size=6), units=st.integers(1, 6))
    def fill(self, keys: str, units: int) -> None:
        """Give keys sessions that are closed at once."""
        self.batch(
            [*(Event(key, Moment("ahead", 0, 0), 1.0) for key in keys), Event("z", Moment("ahead", units, 0), 1.0)], 1
        )

    @rule(units=st.integers(1, 12))
    def close_sessions(self, units: int) -> None:
        self.batch([Event("z", Moment("ahead", units, 0), 1.0)], units)

    @rule(batches=st.integers(1, 8), step=st.integers(1, 3))
    def stand_idle(self, batches: int, step: int) -> None:
        for _ in range(batches):
            # What is due by the watermark needs an event.
            self.batch([Event("z", Moment("ahead", step, 0), 1.0)] if self.model.stream else [], step)

    @rule(drafts=st.lists(rows("ab"), max_size=5), step=st.integers(0, 6), lost=st.none() | st.integers(0, 2))
    def die_and_run_again(self, drafts: list[Draft], step: int, lost: int | None) -> None:
        """Die between the tasks and the commit, perhaps with a store: the batch comes again, to the same results."""
        self.batch(drafts, step, dies=True, lost=lost)

    @rule(lost=st.integers(0, 2))
    def lose_a_store(self, lost: int) -> None:
        self.shards.lose(lost)

    @rule(shards=st.sampled_from([1, 2, 3]))
    def cut_anew(self, shards: int) -> None:
        if self.batch_id >= 0 and shards != self.shards.shards:
            self.shards.cut(shards)
            self.waiting.clear()
            self.batch([], 0)

    @rule(section=st.none() | SECTIONS | SECTIONS | SECTIONS | SECTIONS)
    def change(self, section: Any) -> None:
        """Go on under another [ttl], or none."""
        self.harness._operator, self.waiting = None, {}
        self.pattern, self.harness._ttl, self.model.expired = None, None, None
        if section is None:
            return
        rule_, self.pattern, age, every, stream = section
        unit = self.config.unit
        said, other = expiring_pair(self.config, rule_, self.pattern, age * unit, every * unit, stream=stream)
        self.harness._ttl = session_ttl_section(said)
        self.model.expired, self.model.every, self.model.stream = other.expired, other.every, other.stream

    @precondition(lambda self: any(self.shards._cursors.values()))
    @rule(rule_=st.sampled_from(RULES), age=st.integers(0, 3))
    def scan_amid_a_round(self, rule_: str, age: int) -> None:
        """Look at all while a round is under way, which other changes of [ttl] rarely meet."""
        self.change((rule_, "scan", age, 1, False))
        self.batch([], 1)

    def batch(self, drafts: list[Draft], step: int, *, dies: bool = False, lost: int | None = None) -> None:
        self.clock += step * self.config.unit
        given = self.resolver.batch(drafts, self.model.model)
        died = None
        if dies:
            self.shards.dies = True
            with pytest.raises(DiedError):
                self.harness.process(given, clock_us=self.clock)
            died = self.results(writes=lost is None)
            if self.is_read and self.shown is not None:
                assert self.read() == self.shown
            if lost is not None:
                self.shards.lose(lost)
        out = self.harness.process(given, clock_us=self.clock)
        if died is not None:
            assert self.results(writes=lost is None) == died
        gone = {(c["key"], c["start_us"]) for c in out.changes if c["op"] == "delete"}
        wanted = self.model.batch(given, self.clock, gone if self.pattern == "time_boxed" else None)
        assert canonical_outcome(out, self.config.aggregates) == canonical_outcome(wanted, self.config.aggregates)
        deleted = wanted.counts.get("deleted_by_ttl", 0) if self.pattern is not None else None
        assert out.counts.get("deleted_by_ttl") == deleted
        counts = out.counts
        assert counts["input"] == sum(counts[n] for n in ("accepted", "late", "dead", "dropped", "emitted"))
        assert self.harness.state.get("expired_events", 0) == self.model.removed_events
        self.batch_id += 1
        self.check_rounds(gone)
        if self.is_read:
            self.check_replica()

    def results(self, *, writes: bool) -> Any:
        """Return what the last attempt computed; a store that was lost needs other writes, having nothing that is cold."""
        return {
            n: (
                result.changes.to_pylist(),
                {kind: table.to_pylist() for kind, table in result.side.items()},
                {name: value for name, value in result.stats.items() if name not in MEASURED},
                result.cursor,
                result.writes.to_pylist() if writes and result.writes is not None else None,
            )
            for n, result in self.shards.results.items()
        }

    def check_rounds(self, gone: set[Any]) -> None:
        """Check that what has expired goes within two rounds: the one that was under way when it expired, and the next one.

        In a round each session is looked at once, and once more for each change; a cleanup that looks at fewer than its budget ends it.
        """
        if self.model.looked is None:
            return
        looked = {(session.name, session.revision) for session in self.model.looked}
        waiting = {}
        for session in self.model.left:
            name = session.name, session.revision
            age, seen = self.waiting.get(name, (0, set()))
            waiting[name] = age + 1, seen | looked
            assert age + 1 <= 2 + 2 * len(seen | looked) // self.budget, (name, gone)
        self.waiting = waiting

    def check_replica(self) -> None:
        """Check that a replica shows the sessions of the changelog that events can still meet, key by key and in a range."""
        spec = self.harness._operator.spec
        live = {"grace_us": self.config.grace, "retention_us": self.config.retention}
        state, shards = self.harness.state, self.shards
        log_commit(
            self.root,
            self.batch_id,
            shards.commit_id,
            state,
            shards.expected,
            spec.columns.types,
            live,
            aggregates=self.config.aggregates,
        )
        view = self.replica.refresh()
        assert (view.batch_id, set(view.missing)) == (self.batch_id, shards.unready)
        self.shown = self.read()
        if self.shown is not None:
            assert self.shown == [canonical_session(row, self.config.aggregates) for row in self.model.model.sessions()]

    def read(self) -> Any:
        """Return all that the replica shows as of the last commit."""
        view = self.replica.refresh()
        if view.missing:
            return None
        found = view.scan(None, None, 1000).rows.to_pylist()
        times = {"start_us": "session_start", "end_us": "session_end"}
        plain = [{**row, "key": row["session_key"], **{n: micros(row[t]) for n, t in times.items()}} for row in found]
        assert view.find(list("abcdefz")).to_pylist() == found
        return [canonical_session(row, self.config.aggregates) for row in plain]

    def teardown(self) -> None:
        if self.directory is not None:
            self.stack.close()
            self.directory.cleanup()


class SlowExpiringMachine(ExpiringMachine):
    pass


class ReadMachine(ExpiringMachine):
    """The same beside a replica, which shows the changelog folded at its batch."""

    is_read = True


ExpiringMachine.TestCase.settings = settings(examples(EXAMPLES), stateful_step_count=8)
SlowExpiringMachine.TestCase.settings = settings(examples(EXAMPLES * SLOW_FACTOR), stateful_step_count=30)
ReadMachine.TestCase.settings = settings(examples(EXAMPLES * 2), stateful_step_count=10)
TestExpiringMachine = ExpiringMachine.TestCase
TestSlowExpiringMachine = pytest.mark.slow(SlowExpiringMachine.TestCase)
TestReadMachine = pytest.mark.slow(ReadMachine.TestCase)
