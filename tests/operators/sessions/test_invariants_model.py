"""The sessionizer equals the reference model in all that it shows, batch by batch."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.operators.sessions.strategies import (
    ALL,
    Config,
    Draft,
    Pair,
    batches,
    ci,
    configs,
    events,
    in_each,
    rows,
    slow,
)

VALUED = st.sampled_from([0.0, 1.0, 2.0, 3.0])


def check_equals_the_model(config: Config, drafted: list[list[Draft]]) -> None:
    pair = Pair(config)
    try:
        for drafts in drafted:
            pair.step(drafts)
    finally:
        pair.close()


EVENTS = {"config": configs(aggregates=ALL), "drafted": batches(events("ab", VALUED))}
MIXED = {"config": configs(), "drafted": batches(rows("ab"))}
ONE_KEY = {"config": configs(), "drafted": batches(rows("a"), most=10)}

test_events_with_all_aggregates_equal_the_model = ci(30, **EVENTS)(check_equals_the_model)
test_events_and_corrections_equal_the_model = ci(60, **MIXED)(check_equals_the_model)
test_one_key_with_corrections_equals_the_model = ci(40, **ONE_KEY)(check_equals_the_model)
MODEL = in_each(
    30, check_equals_the_model, lambda limits: {"config": configs(limits=limits), "drafted": batches(rows("ab"))}
)
test_gap_by_equals_the_model, test_gap_by_equals_the_model_slow = MODEL["gap_by"], MODEL["gap_by_slow"]
test_max_length_equals_the_model, test_max_length_equals_the_model_slow = MODEL["max_length"], MODEL["max_length_slow"]
test_both_limits_equal_the_model, test_both_limits_equal_the_model_slow = MODEL["both"], MODEL["both_slow"]
test_earlier_gaps_equal_the_model, test_earlier_gaps_equal_the_model_slow = MODEL["before"], MODEL["before_slow"]
test_events_with_all_aggregates_equal_the_model_slow = slow(30, **EVENTS)(check_equals_the_model)
test_events_and_corrections_equal_the_model_slow = slow(60, **MIXED)(check_equals_the_model)
test_one_key_with_corrections_equals_the_model_slow = slow(40, **ONE_KEY)(check_equals_the_model)
