"""What real Kafka Streams forwards for windows by time and for joins, beside what the rules say, an event a batch."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.kafka_streams import forwarded, needs_kafka_streams
from tests.support import examples

pytestmark = needs_kafka_streams

Event = tuple[Any, ...]
Update = tuple[Any, ...]
START = 100
STREAMS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(START, START + 40), st.integers(0, 9)), max_size=20)


def updates_of_time_windows(size: int, advance: int, grace: int, events: list[Event]) -> list[list[Update]]:
    """Return the updates of windows [s, s + size), s a multiple of advance: an event enters those that end after W - grace."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    frontier, found = 0, []
    for key, time, value in events:
        frontier = max(frontier, time)
        updates = []
        for start in range((time - size) // advance * advance + advance, time + 1, advance):
            if start + size > frontier - grace:
                held = windows[key, start]
                held.append(value)
                updates.append((key, start, start + size, len(held), sum(held)))
        found.append(updates)
    return found


@examples(150)
@given(size=st.integers(1, 12), advance=st.integers(1, 12), grace=st.integers(0, 30), events=STREAMS)
def test_tumbling_and_hopping_updates_are_kafkas_for_any_grace(
    size: int, advance: int, grace: int, events: list[Event]
) -> None:
    advance = min(size, advance)
    topology = {"kind": "time", "size": size, "advance": advance, "grace": grace}
    assert forwarded(topology, events) == updates_of_time_windows(size, advance, grace, events)


def sliding_windows(size: int, grace: int, events: list[Event]) -> dict[Update, tuple[int, int]]:
    """Return count and sum of [t - size, t] and, where not empty, [t + 1, t + 1 + size], for each accepted event's t.

    An event enters each window that holds it and does not end before W - grace; it makes none that does.
    """
    frontier, accepted = 0, []
    for key, time, value in events:
        frontier = max(frontier, time)
        if time + size >= frontier - grace:
            accepted.append((key, time, value, frontier - grace))
    found = {}
    for (key, time, _, closed), after in product(accepted, (False, True)):
        start = time + 1 if after else time - size
        if start + size < closed:
            continue
        held = [
            value
            for other, at, value, close in accepted
            if other == key and start <= at <= start + size and start + size >= close
        ]
        if held:
            found[key, start, start + size] = (len(held), sum(held))
    return found


def last_updates(updates: list[list[Update]]) -> dict[Update, tuple[int, int]]:
    return {update[:3]: update[3:] for of_event in updates for update in of_event}


@examples(150)
@given(size=st.integers(1, 12), events=STREAMS)
def test_sliding_windows_are_kafkas_while_grace_covers_the_disorder(size: int, events: list[Event]) -> None:
    latest, disorder = 0, 0
    for _, time, _ in events:
        latest = max(latest, time)
        disorder = max(disorder, latest - time)
    topology = {"kind": "sliding", "difference": size, "grace": disorder}
    assert last_updates(forwarded(topology, events)) == sliding_windows(size, disorder, events)


BEYOND_GRACE = [("b", 112, 0), ("a", 110, 1), ("a", 112, 2)]
"""Docs/decisions/0014: a's 110 is beyond the grace of its own [101, 110], within that of [103, 112], which is not there yet."""


@pytest.mark.parametrize("grace", [0, 1])
def test_beyond_grace_kafka_loses_an_event_that_a_later_sliding_window_holds(grace: int) -> None:
    real = forwarded({"kind": "sliding", "difference": 9, "grace": grace}, BEYOND_GRACE)
    assert real == [[("b", 103, 112, 1, 0)], [], [("a", 103, 112, 1, 2)]]
    assert sliding_windows(9, grace, BEYOND_GRACE)["a", 103, 112] == (2, 3)


def test_beyond_grace_kafka_counts_an_event_that_a_sliding_window_does_not_hold() -> None:
    events = [("b", 112, 1), ("b", 135, 2), ("b", 116, 8), ("b", 120, 32), ("b", 128, 64)]
    real = last_updates(forwarded({"kind": "sliding", "difference": 8, "grace": 17}, events))
    assert real["b", 120, 128] == (3, 64 + 32 + 8)
    assert sliding_windows(8, 17, events)["b", 120, 128] == (2, 64 + 32)


def test_within_grace_kafka_loses_none() -> None:
    real = forwarded({"kind": "sliding", "difference": 9, "grace": 2}, BEYOND_GRACE)
    assert real == [[("b", 103, 112, 1, 0)], [("a", 101, 110, 1, 1)], [("a", 111, 120, 1, 2), ("a", 103, 112, 2, 3)]]
    assert last_updates(real) == sliding_windows(9, 2, BEYOND_GRACE)


SIDED = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(START, START + 40), st.integers(0, 9), st.sampled_from(["left", "right"])
    ),
    max_size=20,
)


@examples(150)
@given(before=st.integers(0, 12), after=st.integers(0, 12), events=SIDED)
def test_a_join_makes_kafkas_pairs_while_nothing_is_late(before: int, after: int, events: list[Event]) -> None:
    topology = {"kind": "join", "before": before, "after": after, "grace": 40}
    sides = {name: [event for event in events if event[3] == name] for name in ("left", "right")}
    expected = [
        (key, max(time, at), value, with_value)
        for (key, time, value, _), (with_key, at, with_value, _) in product(sides["left"], sides["right"])
        if key == with_key and time - before <= at <= time + after
    ]
    real = [pair for pairs in forwarded(topology, events) for pair in pairs]
    assert sorted(real) == sorted(expected)
