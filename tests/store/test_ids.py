"""Identities in a shard's database, beside a set; and the operator's view, which has none of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.store.api import IDS_FROM
from sessionlake.store.files import FileSegments
from sessionlake.store.ids import MINUTE_US, HiddenIds, Ids, is_of_ids, segment_writes
from sessionlake.store.secondary import OverlaidSegments, SecondarySegments
from sessionlake.warehouse.schemas import YEAR_1_US, YEAR_9999_US
from tests.support import examples

Pair = tuple[int, int]
EVER = YEAR_1_US, YEAR_9999_US
times = st.integers(-3 * MINUTE_US, 500 * MINUTE_US) | st.sampled_from([-1, 0, MINUTE_US - 1, MINUTE_US, *EVER])
hashes = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
identities = st.sets(st.tuples(times, hashes), max_size=20)


def add(ids: Ids, pairs: list[Pair]) -> list[bool]:
    known, writes = ids.known(*(np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1)))
    ids.database.write(segment_writes(writes), {})
    return known.tolist()


@given(st.lists(identities, max_size=6))
@examples(40)
def test_what_was_added_is_known_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, batches: list[set[Pair]]
) -> None:
    ids, seen = Ids(FileSegments(tmp_path_factory.mktemp("ids") / "s"), 60 * MINUTE_US), set[Pair]()
    for batch in batches:
        again = sorted(batch | set(sorted(seen)[::2]))
        assert add(ids, again) == [pair in seen for pair in again]
        seen |= set(again)
    ids.database.close()


def test_segments_before_a_time_are_dropped_as_a_whole(tmp_path: Path) -> None:
    ids = Ids(FileSegments(tmp_path / "s"), 2 * MINUTE_US)
    pairs = [(minute * MINUTE_US, 7) for minute in range(-4, 8)]
    assert add(ids, pairs) == [False] * 12
    ids.drop_before(2 * MINUTE_US + 1)
    assert add(ids, pairs) == [time >= 2 * MINUTE_US for time, _ in pairs]


def test_an_operator_sees_its_own_segments_alone(tmp_path: Path) -> None:
    hidden = HiddenIds(FileSegments(tmp_path / "s"))
    ids = Ids(hidden.database, 60 * MINUTE_US)
    _, writes = ids.known(np.array([5]), np.array([6]))
    assert is_of_ids(writes).tolist() == [True]
    hidden.also = segment_writes(writes)
    hidden.write({3: ([b"k"], [b"v"])}, {"m": b"1"})
    assert hidden.also == {}
    assert hidden.segments == [3]
    assert [number >= IDS_FROM for number in hidden.database.segments] == [False, True]
    own = pa.table({"segment": [4], "key": [b"l"], "value": [b"w"]}, schema=writes.schema)
    replica = SecondarySegments(tmp_path / "s")
    assert replica.segments == [3]
    assert OverlaidSegments(replica, pa.concat_tables([own, writes])).segments == [3, 4]
    hidden.drop_before(IDS_FROM + (1 << 60))
    assert add(ids, [(5, 6)]) == [True], "an operator drops its own segments alone"
    hidden.clear()
    assert add(ids, [(5, 6)]) == [False]
    hidden.close()
