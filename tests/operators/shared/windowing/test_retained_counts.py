"""How far back the newest events reach, against a list of all of them (docs/rules.md, rule 103)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.engine.operator import add_stats
from sessionlake.operators.shared.windowing.retained_counts import ACCEPTED, Cells, RetainedCounts
from sessionlake.stream.watermark import NO_WATERMARK

tasks = st.lists(st.integers(-50, 800), max_size=6)


@given(
    st.lists(st.tuples(tasks, tasks), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(64, 900),
    st.integers(1, 40),
)
def test_the_oldest_cells_go_while_more_events_are_left(
    batches: list[tuple[list[int], list[int]]], most: int, retention: int, span: int
) -> None:
    keeping, cells, accepted = RetainedCounts(most, retention, span), Cells(), list[int]()
    watermark, expired = -(10**6), -(10**7)
    for batch in batches:
        stats: dict[str, int] = {}
        for task in batch:
            taken = [time for time in task if time >= expired]
            add_stats(stats, keeping.counted(np.array(taken, np.int64)))
            accepted += taken
        watermark = max([watermark, *accepted])
        expired = max(expired, watermark - retention)
        cells = keeping.cells_after(cells, stats, expired)
        found = keeping.kept_from(cells, watermark)

        length = max(span, retention // 64)
        left = sorted(start for start in (time - time % length for time in accepted) if start >= expired)
        kept = NO_WATERMARK
        while len(left) > most:
            left = [start for start in left if start > left[0]]
            kept = min(left[0] if left else watermark, watermark - span)
        assert found == kept
        expired = max(expired, found)


def test_a_retention_by_number_at_its_bounds() -> None:
    keeping = RetainedCounts(2, 640, 10)
    cells = keeping.cells_after((), keeping.counted(np.array([0, 9, 10, 640])), 0)
    assert cells == ((0, 2), (10, 1), (640, 1))
    assert keeping.kept_from(cells, 640) == 10
    assert keeping.kept_from(cells[1:], 640) == NO_WATERMARK
    # However many lie in the newest window, they stay; and so does a cell that begins where the retention ends.
    assert keeping.kept_from(((640, 3),), 645) == 635
    assert keeping.cells_after(cells, {}, 10) == cells[1:]
    # A task leaves out what lies further back than the retention from its newest event, not what lies as far.
    assert keeping.counted(np.array([0, 640])) == {ACCEPTED.of(0): 1, ACCEPTED.of(640): 1}
    assert keeping.counted(np.array([0, 641])) == {ACCEPTED.of(640): 1}
