"""Records of a topic as updates of a table: their offsets, and those without a value."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.engine.operator import Aside, BatchContext
from sessionlake.local.shards import LocalShards
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.spec import KeyedSpec, next_state
from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.decoding.kafka_records import RecordDecoder, Topic
from sessionlake.sources.record_columns import META
from sessionlake.store.rows import RowStore
from sessionlake.stream.ingest import EventSpec

PLACES = ("_offset", "_partition", "_no_value")
RECORDS = pa.schema(
    [
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("key", pa.binary()),
    ]
)


def record(key: str | None, offset: int, time: int, **value: Any) -> dict[str, Any]:
    """Return a record; one without a value where none is given."""
    return {
        "value": json.dumps(value).encode() if value else None,
        "partition": 3,
        "offset": offset,
        "timestamp": time,
        "key": None if key is None else key.encode(),
    }


@contextmanager
def topic_table(*, by_offset: bool, key: str = "_key", time: str = "_timestamp") -> Iterator[Any]:
    """Yield what takes a batch of records, and returns the table's rows, its dead letters, and its numbers."""
    types = {**META, "v": pa.int64(), "k": pa.string(), "t": pa.int64()}
    columns = EventColumns(key, time, "us" if time == "t" else None, None, ("v", *PLACES), types)
    decoder = RecordDecoder(columns, Topic("topic", avro=False))
    operator = TableKeeper(KeyedSpec(EventSpec(decoder), ("v",), 3_600_000_000, by_offset))
    state: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as root,
        closing(LocalShards[RowStore](2, lambda of, shard: of.open_store(Path(root, str(shard))))) as shards,
    ):

        def batch(*records: dict[str, Any]) -> tuple[dict[str, int | None], list[str], dict[str, int]]:
            nonlocal state
            context = BatchContext(0, "c", state)
            split = list(operator.split(pa.Table.from_pylist(list(records), schema=RECORDS), context))
            _, stats = shards.run(operator, split, context)
            state = next_state(operator.spec.retention_us, state, stats)
            dead = [row["reason"] for piece in split if isinstance(piece, Aside) for row in piece.rows.to_pylist()]
            rows: dict[str, int | None] = {}
            for shard in range(2):
                keys, stored, _, _ = shards.store(operator, shard).scan()
                values = operator.spec.unpack(stored.packed(stored.codes))[0].to_pylist()
                rows |= dict(zip([k.decode() for k in keys], values, strict=True))
            return dict(sorted(rows.items())), dead, stats

        yield batch


@pytest.mark.parametrize("by_offset", [False, True])
def test_a_record_without_a_value_deletes_its_key(*, by_offset: bool) -> None:
    with topic_table(by_offset=by_offset) as batch:
        rows, dead, _ = batch(record("a", 1, 10, v=1), record("b", 2, 10, v=2), record("a", 3, 20))
        assert (rows, dead) == ({"b": 2}, [])
        rows, _, stats = batch(record("b", 4, 20), record(None, 5, 20))
        assert rows == {}
        assert stats["deletes"] == 1
        assert stats["dead"] == 1
        assert batch(record("b", 6, 30, v=3))[0] == {"b": 3}


def test_offset_and_time_disagree_about_which_is_later() -> None:
    given = record("a", 1, 20, v=1), record("a", 2, 10, v=2), record("b", 3, 10, v=3), record("b", 4, 10, v=4)
    with topic_table(by_offset=False) as batch:
        assert batch(*given)[0] == {"a": 1, "b": 4}
    with topic_table(by_offset=True) as batch:
        assert batch(*given)[0] == {"a": 2, "b": 4}


@pytest.mark.parametrize(("key", "time", "reason"), [("k", "_timestamp", "null key"), ("_key", "t", "null time")])
def test_a_record_without_a_value_has_no_more_than_its_own_key_and_time(key: str, time: str, reason: str) -> None:
    with topic_table(by_offset=False, key=key, time=time) as batch:
        rows, dead, _ = batch(record("a", 1, 10, v=1, k="a", t=10), record("a", 2, 20))
        assert (rows, dead) == ({"a": 1}, [reason])
