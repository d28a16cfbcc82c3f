"""table_live by the one SQL text: the snapshot as of any fold point, deletions and all, and the changelog from any batch on."""

from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.operators.keyed.table import TABLE
from sessionlake.warehouse.dialects import DUCKDB
from tests.support import examples

Row = dict[str, Any]
WRITTEN = ("written_at", pa.timestamp("us", "UTC"))
CHANGES = pa.schema(
    [("op", pa.string()), ("table_key", pa.string()), ("event_time", pa.int64()), ("batch_id", pa.int64()), WRITTEN]
)
SNAPSHOT = pa.schema(
    [
        ("table_key", pa.string()),
        ("event_time", pa.int64()),
        WRITTEN,
        ("deleted", pa.bool_()),
        ("table_part", pa.int64()),
    ]
)


def folded(changes: list[Row], until: int) -> dict[str, Row]:
    """Return the last change of each key up to a batch."""
    return {row["table_key"]: row for row in changes if row["batch_id"] <= until}


@examples(50)
@given(
    batches=st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.tuples(st.booleans(), st.integers(0, 9))), min_size=1, max_size=6
    ),
    fold=st.integers(-1, 5),
    trimmed=st.integers(-1, 5),
    hidden=st.none() | st.integers(-1, 6),
    known=st.booleans(),
)
def test_view_is_the_last_change_of_each_key_less_deletions(
    batches: list[dict[str, tuple[bool, int]]], fold: int, trimmed: int, hidden: int | None, *, known: bool
) -> None:
    changes = [
        {
            "op": "delete" if gone else "upsert",
            "table_key": key,
            "event_time": time,
            "batch_id": number,
            "written_at": number,
        }
        for number, batch in enumerate(batches)
        for key, (gone, time) in batch.items()
    ]
    stored = [
        {
            **{name: row[name] for name in ("table_key", "event_time", "written_at")},
            "deleted": row["op"] == "delete",
            "table_part": 0,
        }
        for key, row in folded(changes, fold).items()
    ]
    # What is trimmed has been folded.
    left = [row for row in changes if row["batch_id"] > min(trimmed, fold)]
    expected = folded(changes, len(batches))
    with duckdb.connect() as database:
        database.register("table_snapshot", pa.Table.from_pylist(stored, schema=SNAPSHOT))
        database.register("table_changelog", pa.Table.from_pylist(left, schema=CHANGES))
        after = fold if known else None
        rows = database.execute(TABLE.live_sql(DUCKDB, SNAPSHOT.names, after=after, hidden_us=hidden)).fetchall()
        text = TABLE.live_sql(DUCKDB, SNAPSHOT.names, after=after, deleted=True, hidden_us=hidden)
        every = database.execute(f"select table_key, event_time, deleted from ({text})").fetchall()
    # A row of a batch that is hidden is absent; what it took the place of stays so. Deletions are no rows.
    if hidden is not None:
        expected = {k: row for k, row in expected.items() if row["op"] == "delete" or row["batch_id"] > hidden}
    assert sorted(rows) == sorted((k, row["event_time"]) for k, row in expected.items() if row["op"] == "upsert")
    assert sorted(every) == sorted((k, row["event_time"], row["op"] == "delete") for k, row in expected.items())
