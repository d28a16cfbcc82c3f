import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.columnar.groups import group_events, group_intervals
from sessionlake.operators.sessions.kernel import premerge
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.watermark import NO_WATERMARK

YEAR_1, YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
GAP = 10
near = st.integers(-40, 40)
times = near | st.sampled_from([YEAR_1, YEAR_9999]).flatmap(lambda t: st.integers(t - 15, t + 15))
codes = st.integers(0, 3) | st.sampled_from([0, 500_000])
intervals = st.lists(st.tuples(codes, times, st.integers(0, 25) | st.integers(0, 3 * 10**17)), max_size=25)


def joined(rows: list[tuple[int, int, int]], gap: int) -> set[frozenset[int]]:
    """Return which rows belong together, by merging pairs until nothing changes."""
    groups = [({i}, code, start, end) for i, (code, start, end) in enumerate(rows)]
    done = False
    while not done:
        done = True
        for a in groups:
            for b in groups:
                if a is not b and a[1] == b[1] and a[2] - b[3] <= gap and b[2] - a[3] <= gap:
                    groups = [g for g in groups if g is not a and g is not b]
                    groups.append((a[0] | b[0], a[1], min(a[2], b[2]), max(a[3], b[3])))
                    done = False
                    break
            if not done:
                break
    return {frozenset(g[0]) for g in groups}


def parts(order: np.ndarray, starts: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(group.tolist()) for group in np.split(order, starts[1:])} if len(order) else set()


@given(rows=intervals)
def test_intervals_group_as_pairs_joined_by_hand(rows: list[tuple[int, int, int]]) -> None:
    closed = [(code, start, min(start + length, YEAR_9999 + 15)) for code, start, length in rows]
    code, start, end = (np.array([r[i] for r in closed], np.int64) for i in range(3))
    assert parts(*group_intervals(code, start, end, GAP)) == joined(closed, GAP)


@given(rows=st.lists(st.tuples(codes, times), max_size=40))
def test_events_group_as_pairs_joined_by_hand_and_are_sorted(rows: list[tuple[int, int]]) -> None:
    code, time = (np.array([r[i] for r in rows], np.int64) for i in range(2))
    order, starts = group_events(code, time, GAP)
    assert parts(order, starts) == joined([(c, t, t) for c, t in rows], GAP)
    assert list(zip(code[order], time[order], strict=True)) == sorted(zip(code, time, strict=True))


@pytest.mark.parametrize("width", [1, 3_600_000_000, 3 * 10**17, 1 << 40])
def test_many_events_are_sorted_whatever_room_their_numbers_need(width: int) -> None:
    rng = np.random.default_rng(width)
    code, time = rng.integers(0, 90_000, 200_000), rng.integers(0, width, 200_000)
    order, _ = group_events(code, time, GAP)
    assert _sorted(code[order], time[order])
    assert (np.bincount(order) == 1).all()


def _sorted(code: np.ndarray, time: np.ndarray) -> bool:
    return bool(((code[1:] > code[:-1]) | ((code[1:] == code[:-1]) & (time[1:] >= time[:-1]))).all())


def test_exactly_gap_groups_and_one_more_does_not() -> None:
    time = np.array([0, GAP, 2 * GAP + 1])
    _, starts = group_events(np.zeros(3, np.int64), time, GAP)
    assert starts.tolist() == [0, 2]


@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", "é"]), near, st.none() | st.integers(-5, 5)), max_size=30),
    close=near | st.just(NO_WATERMARK),
)
def test_premerge_joins_what_is_open_and_leaves_older_events_alone(rows: list, close: int) -> None:
    (total,) = build_aggregates({"a": "sum(x)"}, {"x": pa.int64()})
    keys = pa.array(["pad", *(r[0] for r in rows)], pa.string()).slice(1)
    values = pa.array([9, *(r[2] for r in rows)], pa.int64()).slice(1)
    events = Events(keys, np.array([r[1] for r in rows], np.int64), {"x": values})
    merged, alone = premerge([total], events, SessionWindows(GAP), close + GAP)
    names = sorted({r[0] for r in rows})
    expected, left = [], set()
    for group in joined([(names.index(k), t, t) for k, t, _ in rows], GAP):
        members = [rows[i] for i in sorted(group)]
        end = max(t for _, t, _ in members)
        if end < close:
            left |= group
            continue
        some = [v for _, _, v in members if v is not None]
        expected.append((members[0][0], min(t for _, t, _ in members), end, len(members), sum(some) if some else None))
    assert set(np.flatnonzero(alone).tolist()) == left
    found = zip(
        merged.keys.to_pylist(), merged.start.tolist(), merged.end.tolist(), merged.count.tolist(),
        total.value(merged.states).to_pylist(), strict=True,
    )  # fmt: skip
    assert sorted(found, key=repr) == sorted(expected, key=repr)
