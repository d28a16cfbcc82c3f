"""The writes of a batch against a dict: what is in each touched (segment, key), ordered; nulls where nothing is left."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.records import Records
from sessionlake.store.layout import unpack
from sessionlake.store.segmented import SegmentedSessionStore
from tests.support import examples

KEYS = ["", "a", "b", "ü"]
near = st.integers(-150, 350)
far = near | st.sampled_from([-62_135_596_800_000_000, 253_402_300_799_999_999])
Row = tuple[int, int, int]


@pytest.fixture(scope="module", params=[100, 1 << 62])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SegmentedSessionStore]:
    opened = SegmentedSessionStore(tmp_path_factory.mktemp("writes") / "db", request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize("times", [near, far], ids=["near", "far"])
@examples(60)
@given(data=st.data())
def test_writes_are_the_content_of_all_that_is_touched(
    store: SegmentedSessionStore, times: st.SearchStrategy[int], data: st.DataObject
) -> None:
    row = st.tuples(st.integers(0, len(KEYS) - 1), times, st.integers(0, 120))
    sessions = data.draw(st.lists(row, max_size=12, unique=True))
    chosen = data.draw(
        st.none() | st.lists(st.sampled_from(range(len(sessions))), unique=True) if sessions else st.none()
    )
    emptied = data.draw(st.lists(st.tuples(st.integers(0, len(KEYS) - 1), times), max_size=4))
    written = sessions if chosen is None else [sessions[i] for i in chosen]
    expected: dict[tuple[int, str], list[Row]] = {(end // store.interval_us, KEYS[o]): [] for o, end in emptied}
    for owner, end, length in written:
        expected.setdefault((end // store.interval_us, KEYS[owner]), []).append((end, end - length, length))
    touched = [(o, end) for o, end, _ in written] + emptied
    owners, ends = (np.array([pair[i] for pair in touched], np.int64) for i in (0, 1))
    rows = None if chosen is None else np.array(chosen, np.int64)

    found = store.writes(pa.array(KEYS), columns(sessions), owners, ends // store.interval_us, rows)

    assert list(zip(found["segment"].to_pylist(), found["key"].to_pylist(), strict=True)) == [
        (segment, key.encode()) for segment, key in sorted(expected, key=lambda pair: (pair[0], KEYS.index(pair[1])))
    ]
    for segment, key, value in zip(*(found[name].to_pylist() for name in found.column_names), strict=True):
        content = sorted(expected[segment, key.decode()])
        assert (value is None) == (not content)
        assert plain(unpack(pa.array([value], pa.binary()))) == content


def columns(sessions: list[Row]) -> Records:
    owner, end, length = np.array(sessions, np.int64).reshape(-1, 3).T
    states = pa.array([b"x" * n for n in length.tolist()], pa.binary())
    return Records(owner, end - length, end, length, length, states)


def plain(sessions: Records) -> list[Row]:
    assert [len(state) for state in sessions.state.to_pylist()] == sessions.count.tolist() == sessions.revision.tolist()
    return list(zip(sessions.end.tolist(), sessions.start.tolist(), sessions.count.tolist(), strict=True))
