"""Late shares against a plain model of the stream, and the gap that distances suggest."""

from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.durations import parse_duration
from sessionlake.propose.measure import GAPS, late_share, propose_gap
from sessionlake.propose.windows import SIZES, refused_share, windows_of
from sessionlake.propose.windows import late_share as windows_late_share
from tests.oracle.model import ReferenceModel
from tests.oracle.windows import WindowModel
from tests.support import examples

MINUTE = 60_000_000
events = st.tuples(st.integers(0, 2), st.integers(0, 60))
streams = st.lists(st.lists(events, max_size=6), max_size=8)


@examples(400)
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


@examples(200)
@given(streams, st.sampled_from(["tumbling", "hopping", "sliding"]), st.integers(0, 90), st.integers(0, 30))
def test_late_share_of_windows_is_what_the_machines_refuse(
    stream: list[list[tuple[int, int]]], kind: Literal["tumbling", "hopping", "sliding"], grace: int, more: int
) -> None:
    size, advance = (parse_duration(text) for text in ("5 minutes", SIZES["5 minutes"]))
    retention = max(5, grace) + more
    model = WindowModel(kind, size, advance=advance, grace=grace * MINUTE, retention=retention * MINUTE)
    refused = 0
    for clock, batch in enumerate(stream):
        result = model.batch([(f"k{key}", minute * MINUTE, 1) for key, minute in batch], clock)
        refused += len(result.late) + len(result.dead)
    arrays = [
        tuple(np.array([e[side] for e in batch], np.int64) * unit for side, unit in ((0, 1), (1, MINUTE)))
        for batch in stream
    ]
    total = sum(map(len, stream))
    found = windows_late_share(arrays, windows_of(kind, "5 minutes"), f"{grace} minutes", f"{retention} minutes")
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


def test_update_exactly_a_retention_before_the_newest_of_earlier_batches_is_not_refused() -> None:
    hour = 60 * MINUTE
    times = [[0, hour], [0, -1, 2 * hour], [hour, hour - 1], [hour - 1]]
    batches = [(np.zeros(len(some), np.int64), np.array(some)) for some in times]
    assert refused_share(batches, "1 hour") == 3 / 8
    assert refused_share([], "1 hour") == 0.0
