"""Late shares against a plain model of the stream, and the gap that distances suggest."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.propose.measure import GAPS, late_share, propose_gap
from tests.oracle.model import ReferenceModel

MINUTE = 60_000_000
events = st.tuples(st.integers(0, 2), st.integers(0, 60))
streams = st.lists(st.lists(events, max_size=6), max_size=8)


@settings(max_examples=400)
@given(streams, st.integers(1, 6), st.integers(0, 8), st.integers(0, 8))
def test_late_share_is_what_the_reference_model_refuses(
    stream: list[list[tuple[int, int]]], gap: int, grace: int, more: int
) -> None:
    retention = gap + grace + more
    model = ReferenceModel(gap * MINUTE, grace * MINUTE, retention * MINUTE, {})
    refused = 0
    for batch in stream:
        out = model.process([{"key": f"k{key}", "time_us": minute * MINUTE} for key, minute in batch])
        refused += len(out.late) + len(out.dead)
    arrays = [
        tuple(np.array([e[side] for e in batch], np.int64) * unit for side, unit in ((0, 1), (1, MINUTE)))
        for batch in stream
    ]
    total = sum(map(len, stream))
    found = late_share(arrays, f"{gap} minutes", f"{grace} minutes", f"{retention} minutes")
    assert found == (refused / total if total else 0.0)


def test_the_gap_is_where_the_fewest_distances_lie() -> None:
    within, apart = [2 * MINUTE, 8 * MINUTE, 20 * MINUTE] * 100, [20 * 60 * MINUTE] * 50
    longer = [45 * MINUTE] * 20 + [90 * MINUTE] * 20 + [3 * 60 * MINUTE] * 20
    assert (
        propose_gap(np.array([*within, *longer, *apart, *[6 * 60 * MINUTE] * 9, *[10 * 60 * MINUTE] * 9])) == "4 hours"
    )
    assert propose_gap(np.array([*within, *apart])) == "30 minutes"


def test_few_or_wide_distances_say_nothing_of_the_gap() -> None:
    assert propose_gap(np.array([MINUTE] * 19)) == "30 minutes"
    assert propose_gap(np.array([3 * 24 * 60 * MINUTE] * 100)) == "30 minutes"
    assert "30 minutes" in GAPS
