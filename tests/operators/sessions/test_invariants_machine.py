"""The sessionizer beside the model as a state machine, where Hypothesis picks the next batch by kind."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.operators.sessions.strategies import (
    LIMITS,
    SLOW_FACTOR,
    Config,
    Draft,
    Event,
    Moment,
    Pair,
    batches,
    configs,
    corrections,
    events,
    rows,
)
from tests.support import examples

EXAMPLES = 20


class SessionizerMachine(RuleBasedStateMachine):
    pair: Pair | None = None

    @initialize(config=configs(shards=(1, 3)))
    def open(self, config: Config) -> None:
        self.pair = Pair(config)

    @rule(drafts=st.lists(events("ab"), min_size=1, max_size=5))
    def send_events(self, drafts: list[Draft]) -> None:
        self.pair.step(drafts)

    @rule(drafts=st.lists(corrections("ab"), min_size=1, max_size=3))
    def send_corrections(self, drafts: list[Draft]) -> None:
        _, out = self.pair.step(drafts)
        assert not out.late

    @rule(drafts=st.lists(rows("ab"), min_size=1, max_size=5))
    def send_both(self, drafts: list[Draft]) -> None:
        self.pair.step(drafts)

    @rule(units=st.integers(1, 20))
    def leap_ahead(self, units: int) -> None:
        """Move the watermark, so that sessions close and turn cold."""
        self.pair.step([Event("z", Moment("ahead", units, 0), 1.0)])

    @rule()
    def send_nothing(self) -> None:
        _, out = self.pair.step([])
        assert out.changes == []

    @rule(drafted=batches(rows("a"), most=3))
    def send_several_batches(self, drafted: list[list[Draft]]) -> None:
        for drafts in drafted:
            self.pair.step(drafts)

    @invariant()
    def stores_agree(self) -> None:
        if self.pair is not None:
            self.pair.check_sessions()

    def teardown(self) -> None:
        if self.pair is not None:
            self.pair.close()


class SlowSessionizerMachine(SessionizerMachine):
    pass


class LimitedMachine(SessionizerMachine):
    """The same with gaps of events' own, cells, or both."""

    @initialize(config=st.sampled_from(LIMITS[1:]).flatmap(lambda limits: configs(shards=(1, 3), limits=limits)))
    def open(self, config: Config) -> None:
        self.pair = Pair(config)


class SlowLimitedMachine(LimitedMachine):
    pass


LimitedMachine.TestCase.settings = settings(examples(EXAMPLES), stateful_step_count=12)
SlowLimitedMachine.TestCase.settings = settings(examples(EXAMPLES * SLOW_FACTOR), stateful_step_count=30)
TestLimitedMachine = LimitedMachine.TestCase
TestSlowLimitedMachine = pytest.mark.slow(SlowLimitedMachine.TestCase)
SessionizerMachine.TestCase.settings = settings(examples(EXAMPLES), stateful_step_count=12)
SlowSessionizerMachine.TestCase.settings = settings(examples(EXAMPLES * SLOW_FACTOR), stateful_step_count=30)
TestSessionizerMachine = SessionizerMachine.TestCase
TestSlowSessionizerMachine = pytest.mark.slow(SlowSessionizerMachine.TestCase)
