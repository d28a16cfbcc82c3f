"""The stored state that shards are handed: each row once, each key in one part, in a file that nothing is left of."""

import itertools
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.columnar.keys import shard_of_key
from sessionlake.columnar.newest import KEY, LIVE, OLDEST, VERSION
from sessionlake.engine import coordinator
from sessionlake.engine.coordinator import Coordinator
from sessionlake.engine.exchange import from_payload, read_wire, wire_rows
from sessionlake.engine.handed import RESTORE, HandedIn, handed_pieces, merged_pieces, place_of
from sessionlake.errors import StoreError
from tests.engine.shard_pipeline import Pipeline

EVENTS = pa.table({"key": ["a"]})


@given(
    st.lists(st.lists(st.text(max_size=3), max_size=20), max_size=4),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sets(st.integers(0, 4)),
)
def test_each_row_is_in_one_part_of_its_shard(
    batches: list[list[str]], shards: int, parts: int, restoring: set[int]
) -> None:
    numbers = itertools.count()
    read = [
        pa.record_batch(
            {"key": pa.array(keys, pa.string()), "number": pa.array([next(numbers) for _ in keys], pa.int64())}
        )
        for keys in batches
    ]
    rows = [row for batch in read for row in batch.to_pylist()]
    pieces = handed_pieces(read, frozenset(restoring), shards, parts)
    with TemporaryDirectory() as folder:
        handed = HandedIn(Path(folder))
        others = read_wire(wire_rows([*pieces, (0, "events", EVENTS)]), handed.take)
        found = {shard: [table.to_pylist() for table in handed.parts(shard)] for shard in range(5)}
        assert list(Path(folder).iterdir()) == []
        handed.close()
    assert others == {0: {"events": EVENTS}}
    for shard, tables in found.items():
        own = [r for r in rows if shard in restoring and shard_of_key(r["key"].encode(), shards) == shard]
        assert sorted((r for table in tables for r in table), key=lambda r: r["number"]) == own
        assert len(tables) <= parts
        of_tables = [{r["key"] for r in table} for table in tables]
        assert all(of_tables)
        assert sum(map(len, of_tables)) == len({r["key"] for r in own})


@given(
    st.lists(st.tuples(st.text(max_size=2), st.integers(OLDEST, 5), st.booleans()), unique_by=lambda row: row[:2]),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_parts_that_are_merged_on_the_way_are_the_same_for_the_shards(
    rows: list[tuple[str, int, bool]], shards: int, parts: int
) -> None:
    """On a cluster, each part of a shard by one task of a stage before that of the shards."""
    schema = pa.schema({KEY: pa.string(), VERSION: pa.int64(), LIVE: pa.bool_()})
    told = [dict(zip(schema.names, row, strict=True)) for row in rows]
    batches = [pa.RecordBatch.from_pylist(told[at : at + 3], schema=schema) for at in range(0, len(told), 3)]
    wire = [*wire_rows(handed_pieces(batches, frozenset(range(shards)), shards, parts))]
    with TemporaryDirectory() as folder:

        def handed(rows: Iterable[pa.RecordBatch]) -> list[list[str]]:
            with closing(HandedIn(Path(folder))) as taken:
                read_wire(rows, taken.take)
                found = [taken.parts(shard) for shard in range(shards)]
                return [sorted(key for part in of for key in part[KEY].to_pylist()) for of in found]

        by_place: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        for row in wire:
            by_place.setdefault((row["kind"][0].as_py(), row["shard"][0].as_py()), []).append(row)
        merged = [*wire_rows(piece for some in by_place.values() for piece in merged_pieces(some, Path(folder)))]
        assert handed(merged) == handed(wire)
        assert all(VERSION not in from_payload(row["payload"][0].as_buffer()).column_names for row in merged)


def test_a_disk_that_refuses_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"store: a shard's state can't be written to '.*/file/store' \("):
        HandedIn(tmp_path / "file/store").take(0, "restore 0", pa.py_buffer(b"rows"))


def test_a_full_disk_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small piece fits into the file's buffer: only its flush fails."""
    with Path("/dev/full").open("r+b") as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full)
        handed = HandedIn(tmp_path)
        assert handed.take(0, "restore 0", pa.py_buffer(b"rows"))
        with pytest.raises(StoreError, match="No space left on device"):
            next(handed.parts(0))
        handed.close()


def test_a_shard_without_a_row_in_the_tables_is_restored(tmp_path: Path) -> None:
    """For example one whose last session has been erased."""
    pipeline = Pipeline(tmp_path)
    pipeline.batch("a", ["x"])
    pipeline.totals.clear()
    assert pipeline.batch("b", ["y"]) == ("restored", {"y": 1})
    assert pipeline.batch("b", ["y"]) == ("kept", {"y": 2})


def test_each_part_of_each_shard_has_a_place_of_its_own(spark: SparkSession) -> None:
    rows = [(shard, f"{RESTORE} {part}") for shard in range(3) for part in range(12)]
    found = spark.createDataFrame(rows, "shard int, kind string").selectExpr(place_of(3)).collect()
    assert sorted(row[0] for row in found) == list(range(36))


def test_a_cluster_is_handed_the_newest_versions_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process takes all versions: its tasks read them part by part. A task of a cluster gets its rows at once."""
    monkeypatch.setattr(coordinator, "is_local", lambda _: False)
    told = [(f"k{key}", version, version % 2 == 0) for key in range(20) for version in range(OLDEST, 3 + key % 2)]
    stored = spark.createDataFrame(told, f"{KEY} string, {VERSION} long, {LIVE} boolean")
    own: Any = SimpleNamespace(_spark=spark, _pipeline=SimpleNamespace(shards=2, store_dir=str(tmp_path)))
    wire = Coordinator._handed(own, stored, frozenset(range(2)), 3).toArrow()
    pieces = [from_payload(payload.as_buffer()) for payload in wire["payload"]]
    assert all(piece.column_names == [KEY] for piece in pieces)
    assert sorted(key for piece in pieces for key in piece[KEY].to_pylist()) == sorted(
        f"k{key}" for key in range(20) if key % 2 == 0
    )
