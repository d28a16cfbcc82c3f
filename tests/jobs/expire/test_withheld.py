"""Which batches the topic is told of, without a broker (docs/rules.md, rules 180 and 183)."""

from typing import Any

import pytest

from sessionlake.jobs.expire.tombstone_sender import joined, removed_by
from sessionlake.operators.shared.cleanups.brake import JUMPED
from sessionlake.stream.kind import ALLOW_EXPIRY
from sessionlake.warehouse.batch_commit import BatchCommit, Settings


def batch(state: dict[str, Any], **live: Any) -> BatchCommit:
    settings = Settings({}, {"ttl": {"topic_tombstones": True}, **live}, {})
    return BatchCommit("t", "c", 3, "a", state, {"deleted_by_ttl": 7}, (), "", settings, None, 0, 0)


@pytest.mark.parametrize(
    ("state", "live", "told"),
    [({}, {}, 7), ({JUMPED: 5}, {}, 0), ({JUMPED: 5}, {ALLOW_EXPIRY: True}, 7), ({}, {"ttl": {}}, 0)],
    ids=["as ever", "within a day of a jump", "allowed", "nobody asks"],
)
def test_the_topic_is_told_of_no_row_that_goes_after_a_jump(
    state: dict[str, Any], live: dict[str, Any], told: int
) -> None:
    assert removed_by(batch(state, **live)) == told


def test_neighbours_are_one_range() -> None:
    ranges: list[tuple[int, int]] = []
    for number in (7, 5, 4, 9, 6, 5):
        ranges = joined(ranges, number)
    assert sorted(ranges) == [(4, 7), (9, 9)]
