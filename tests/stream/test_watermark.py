"""A pipeline's watermark is the least of its inputs', moves with events and `advance`, and never back."""

from typing import Any

from sessionlake.stream.control import MAX_ADVANCE
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.watermark import NO_WATERMARK, advanced, max_time_of, watermark_of

LEFT, RIGHT = max_time_of("left"), max_time_of("right")


def test_one_input_has_the_greatest_time_and_never_an_older_one() -> None:
    state: dict[str, Any] = {}
    for stats, watermark in (
        ({}, None),
        ({max_time_of(EVENTS): 7}, 7),
        ({max_time_of(EVENTS): 3}, 7),
        ({MAX_ADVANCE: 9}, 9),
    ):
        state = advanced(state, stats)
        assert state == {"watermark_us": watermark}


def test_of_several_inputs_the_least_counts() -> None:
    state: dict[str, Any] = {}
    seen = []
    for stats in ({LEFT: 50}, {RIGHT: 20}, {RIGHT: 90}, {LEFT: 10}, {MAX_ADVANCE: 70}, {LEFT: 95}):
        state = advanced(state, stats, ("left", "right"))
        seen.append((watermark_of(state), watermark_of(state, "left"), watermark_of(state, "right")))
    # Until the right side has an event, any time may still come from it.
    assert seen == [
        (NO_WATERMARK, 50, NO_WATERMARK),
        (20, 50, 20),
        (50, 50, 90),
        (50, 50, 90),
        (70, 70, 90),
        (90, 95, 90),
    ]
