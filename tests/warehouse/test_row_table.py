"""A table that is declared once: what its schemas, changes and restores derive."""

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sessionlake.columnar.identity import record_id
from sessionlake.warehouse.changelog import OneRowChangelog
from sessionlake.warehouse.row_table import VALUES, Column, Role, RowTable

TIME = pa.timestamp("us", "UTC")
ROWS = RowTable(
    OneRowChangelog("thing", time="changed_at"),
    (
        Column("thing_key", pa.string(), "The key", Role.KEY, "key"),
        Column("changed_at", TIME, "When", Role.CLOCK, "changed_us"),
        Column("number", pa.int64(), "How many", Role.COUNT, "number"),
        Column("revision", pa.int64(), "The batch", Role.REVISION),
        VALUES,
    ),
    rows="things",
    computed=(Column("twice", pa.int64(), "2 * number"),),
    stored_only=(Column("gone", pa.bool_(), "Whether it is gone"),),
)
SUM = pa.field("total", pa.float64())
SCHEMA = ROWS.changes_schema([SUM], marks=False)
BATCH = SimpleNamespace(clock_us=5_000_000, batch_id=7)


def test_schemas_have_the_columns_in_their_order() -> None:
    own = ["thing_key", "changed_at", "number", "revision", "total"]
    assert SCHEMA.names == ["op", *own]
    assert ROWS.changes_schema([SUM], marks=True).names == ["op", *own, "twice", "batch_id", "commit_id"]
    assert ROWS.snapshot_schema([SUM]).names == [*own, "twice", "gone", "thing_part"]
    assert ROWS.restored_schema() == pa.schema(
        [("key", pa.string()), ("changed_us", pa.int64()), ("number", pa.int64())]
    )
    assert SCHEMA.field("number").metadata == {b"comment": b"How many"}


def test_a_change_has_clock_and_number_of_its_batch_and_a_delete_only_these() -> None:
    known = {"number": pa.array([3]), "total": pa.array([1.5])}
    (put,) = ROWS.changes(SCHEMA, "upsert", pa.array(["a"]), known, BATCH).to_pylist()
    assert (put["op"], put["thing_key"], put["number"], put["total"], put["revision"]) == ("upsert", "a", 3, 1.5, 7)
    assert put["changed_at"].timestamp() == 5
    (gone,) = ROWS.changes(SCHEMA, "delete", pa.array(["a"]), {}, BATCH).to_pylist()
    assert (gone["op"], gone["number"], gone["total"], gone["revision"]) == ("delete", 0, None, 7)


def test_previous_rows_keep_their_own_and_a_misspelt_column_is_refused() -> None:
    (was,) = ROWS.changes(SCHEMA, "upsert", pa.array(["a"]), {"revision": pa.array([2])}, None).to_pylist()
    assert (was["revision"], was["changed_at"]) == (2, None)
    with pytest.raises(KeyError, match="totl"):
        ROWS.changes(SCHEMA, "upsert", pa.array(["a"]), {"totl": pa.array([1.0])}, BATCH)


def test_a_tables_rows_have_the_hash_of_their_identity_before_computed_columns() -> None:
    def doubled(rows: pa.Table) -> pa.Table:
        return rows.append_column("twice", pc.multiply(rows["number"], 2))

    table = replace(ROWS, hashed=("changed_at", "number"), compute=doubled)
    assert table.changes_schema([SUM], marks=True).names[-4:] == ["thing_id", "twice", "batch_id", "commit_id"]
    changes = table.changes(SCHEMA, "upsert", pa.array(["a"]), {"number": pa.array([3])}, BATCH)
    assert ROWS.conversion(changes) == changes
    converted = table.conversion(changes)
    assert converted.column_names[-2:] == ["thing_id", "twice"]
    assert converted["thing_id"].to_pylist() == [record_id(b"a", 5_000_000, 3)]


def test_changes_of_several_kinds_are_one_table() -> None:
    ops = pa.array(["delete", "upsert"])
    rows = ROWS.changes(SCHEMA, ops, pa.array(["a", "b"]), {"number": pa.array([3, 4])}, BATCH).to_pylist()
    assert [(row["op"], row["thing_key"], row["number"]) for row in rows] == [("delete", "a", 3), ("upsert", "b", 4)]
