"""A retention by time and by number at once: a flood is bounded, no pair is lost, and what is refused is told (docs/rules.md, rule 123)."""

from typing import Any

import pytest

from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.testing.joins import JoinHarness

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
BATCHES, EACH = 12, 100
STEP = 6 * SECOND


def flood(most: int) -> tuple[JoinHarness, int, set[tuple[int, int]]]:
    """Play ten minutes a batch, a message of each side every six seconds; return what is kept, and the pairs."""
    sides = {"left": {"name": "a", "size": "1 minute"}, "right": {"name": "b", "size": "1 minute"}}
    join = JoinHarness(on=["id"], grace="2 minutes", retention="1 day", retention_count=most, **sides)
    times, pairs = list[int](), set[tuple[int, int]]()
    for number in range(BATCHES):
        some = [START + (number * EACH + n) * STEP for n in range(EACH)]
        times += some
        rows = [{"id": 1, "time_us": time} for time in some]
        output = join.process(rows, rows, START)
        pairs |= {(r["left_position"], r["right_position"]) for r in output.pairs}
    kept = sum(time >= JoinProgress.of(join.state).horizon("left") for time in times)
    return join, kept, pairs


@pytest.mark.parametrize(("most", "kept"), [(0, BATCHES * EACH), (10**6, BATCHES * EACH)])
def test_without_a_number_a_day_is_kept(most: int, kept: int) -> None:
    join, found, pairs = flood(most)
    with join:
        assert (found, len(pairs)) == (kept, BATCHES * EACH * 21 - 110)


def test_a_flood_within_the_retention_is_bounded_and_loses_no_pair() -> None:
    join, found, pairs = flood(most=500)
    with join:
        # Four minutes hold 40 of each side, which may have partners still to come.
        assert 40 < found <= 250
        assert len(pairs) == BATCHES * EACH * 21 - 110
        horizon = JoinProgress.of(join.state).horizon("left")
        rows: list[dict[str, Any]] = [
            {"id": 1, "time_us": time} for time in (horizon - 1, horizon, START + 1200 * STEP)
        ]
        output = join.process(rows, [], START)
        assert [(row["time_us"], row["reason"]) for row in output.dead] == [(horizon - 1, "beyond retention")]
        assert [row["time_us"] for row in output.late] == [horizon]
        assert output.counts["input"] == 3 == sum(output.counts[name] for name in ("accepted", "late", "dead"))
        join.lose_stores()
        again = join.process([], [{"id": 1, "time_us": START + 1200 * STEP}], START)
        assert len(again.pairs) == 11
