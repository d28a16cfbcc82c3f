"""When cleanups are due while nothing comes in, what a state tells of the last one, and how fast rows are taken to be looked at."""

import pytest

from sessionlake.operators.shared.cleanups.names import EXPIRY_LAG, ROUND
from sessionlake.operators.shared.cleanups.schedule import Clock, Schedule, next_rate, next_schedule

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("clock", "every_s", "state", "due_s"),
    [
        ("wall", 60, {"cleaned_wall_us": 61 * SECOND}, 120),
        ("wall", 60, {"cleaned_wall_us": 115 * SECOND}, 125),
        ("wall", 1, {"cleaned_wall_us": 0}, 10),
        ("wall", 60, {"cleaned_wall_us": 61 * SECOND, "cleanup_unfinished": True}, 71),
        ("wall", 60, {}, None),
        ("stream", 60, {"cleaned_stream_us": 0, "cleaned_wall_us": 0}, None),
    ],
)
def test_idle_pipeline_has_a_cleanup_when_one_is_due_and_ten_seconds_after_the_last(
    clock: Clock, every_s: int, state: dict[str, int], due_s: int | None
) -> None:
    assert Schedule(clock, every_s * SECOND).due_us(state) == (None if due_s is None else due_s * SECOND)


def test_what_is_told_is_of_the_last_cleanup() -> None:
    before = {"cleaned_wall_us": 1, EXPIRY_LAG: 5, ROUND: 7}
    assert next_schedule(before, {}) == before
    assert next_schedule(before, {"max_cleaned_wall_us": 9, "max_expiry_lag_us": 0}) == {
        "cleaned_wall_us": 9,
        EXPIRY_LAG: 0,
    }


@pytest.mark.parametrize(
    ("scanned", "took_us", "rate"),
    [(0, 9, 200), (200, 1000, 200), (100, 1000, 170), (1000, 1000, 400), (1000, 0, 400), (1, SECOND, 140)],
)
def test_rate_follows_what_is_measured_and_at_most_doubles(scanned: int, took_us: int, rate: int) -> None:
    assert next_rate(200, scanned, took_us) == rate
    assert next_rate(1, 1, SECOND) == 1
