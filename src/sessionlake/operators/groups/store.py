"""The store of groups: one record for each key, all in one segment of the store of sessions, and none ever expires."""

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.records import Records
from sessionlake.store.segmented import SegmentedSessionStore

SEGMENT = 0
"""The number of the segment: that of records which end at 0."""
INTERVAL_US = 1
"""Length of the store's segments; any would do."""
OLDEST_US = 0
"""Segments of before it are dropped: there are none."""


def records(codes: Ints, changed_us: Ints, count: Ints, revision: Ints, state: pa.Array) -> Records:
    """Return groups as records: their start is the time of their last change."""
    return Records(codes, changed_us, np.full(len(codes), SEGMENT), count, revision, state)


def find(store: SegmentedSessionStore, keys: pa.Array) -> Records:
    """Return the groups of distinct keys, text, ascending; ascending by code, the key's place."""
    return store.find_many(keys.cast(pa.binary()), np.zeros(len(keys), np.int64)).sessions


def writes(store: SegmentedSessionStore, keys: pa.Array, put: Records, deleted: Ints) -> pa.Table:
    """Return the writes that put groups, and delete those of the codes `deleted`."""
    touched = np.concatenate([put.codes, deleted])
    return store.writes(keys, put, touched, np.full(len(touched), SEGMENT))
