"""The files by which `forget` knows the pipelines that read the results of one."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.seen import Reader, readers_of
from sessionlake.warehouse.tables import Tables


def test_a_reader_leaves_one_file_for_each_directory_of_its_config(spark: SparkSession, tmp_path: Path) -> None:
    upstream = Tables(spark, str(tmp_path / "front"), Changelog("session"))
    assert readers_of(upstream, upstream.warehouse) == []
    reader = Reader("days", "/configs", str(tmp_path / "days"), "group_changelog", "source.of")
    moved = replace(reader, directory="/moved")
    for one in (reader, reader, moved, reader):
        one.record(upstream)
    assert sorted(readers_of(upstream, upstream.warehouse), key=lambda one: one.directory) == [reader, moved]
    (tmp_path / "front" / "_readers" / "notes.txt").write_text("not ours")
    assert len(readers_of(upstream, upstream.warehouse)) == 2
    assert reader.reached(Tables(spark, reader.warehouse, upstream.changelog)) is None, (
        "its tables are gone, or were never made: nothing waits for it"
    )
