"""Which batch read which events: Delta's log against offsets, and positions that Spark has forgotten."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import PipelineStateError, SourceError
from sessionlake.jobs.backfill import backfill
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.decoding.files import PATH
from sessionlake.sources.files import FileSource
from sessionlake.stream import input_log as inputs_module
from sessionlake.stream.input_log import BATCH_INPUTS, batch_inputs
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.streamed_files import BATCH, added, read_files, streamed_files
from sessionlake.warehouse.tables import Table, Tables
from tests.support import make_config


def add(spark: SparkSession, path: Path, first: int, files: int) -> None:
    """Append files of one event each, each event with a key of its own."""
    rows = [(f"key{i}", i, float(i)) for i in range(first, first + files)]
    frame = spark.createDataFrame(rows, "key string, time_us int, v double").repartitionByRange(files, "time_us")
    frame.write.format("delta").mode("append").save(str(path))


def test_a_key_may_hold_any_line_separator(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a\u0085b\u2028c\u2029d",)], "key string")
    frame.write.format("delta").save(str(tmp_path / "source"))
    assert len(added(Tables(spark, str(tmp_path), CHANGELOG)["source"], 0)) == 1


def test_a_file_that_workers_can_not_open_and_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    files = spark.createDataFrame([(str(tmp_path / "gone.json"), 0)], f"{PATH} string, {BATCH} long")
    config = make_config(tmp_path, source={"path": "s3a://bucket/events"})
    with pytest.raises(SourceError, match=r"gone\.json.*must still be there") as raised:
        FileSource(spark, config)._with_content(files)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_delta_source_is_read_as_its_stream_read_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    config = make_config(tmp_path, source={"kind": "delta", "path": "source", "format": None, "max_files_per_batch": 2})
    add(spark, source, 0, 2)
    add(spark, source, 2, 3)
    run(spark, config, once=True)
    monkeypatch.setattr(inputs_module, "_SAVE_AFTER", 2)
    add(spark, source, 5, 3)
    spark.sql(f"delete from delta.`{source}` where time_us = 1")
    add(spark, source, 8, 1)
    run(spark, config, once=True)

    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    changes = tables[schemas.CHANGELOG].read().select("session_key", "batch_id").collect()
    read_by = {row[0]: row[1] for row in changes}
    last = max(read_by.values())
    assert last >= 4
    inputs = batch_inputs(tables, config, last)
    offsets = [(i.batch_id, i.events) for i in inputs]
    table = Table(tables, str(source))
    files = streamed_files(table, offsets, range(last + 1))
    rows = read_files(table, files).select("key", "batch_id").collect()
    assert {row[0]: row[1] for row in rows} == read_by
    assert len(rows) == 9
    report = backfill(spark, config, from_us=0, to_us=100, dry_run=True)
    assert (report.counts["sessions"], report.counts["corrections"]) == (9, 0)
    some = streamed_files(table, offsets, {1, last})
    assert {f.batch_id for f in some} == {1, last}

    assert tables[BATCH_INPUTS].exists()
    shutil.rmtree(Path(config.checkpoint) / "offsets")
    saved = inputs_module.saved_batch(tables)
    assert batch_inputs(tables, config, saved) == inputs[: saved + 1]
    assert saved == last - 1
    with pytest.raises(PipelineStateError, match=f"the input of batch {last} is no longer known"):
        batch_inputs(tables, config, last)
    for log in (source / "_delta_log").glob("*.json"):
        log.unlink()
    with pytest.raises(SourceError, match="no longer has version"):
        streamed_files(table, offsets, {last})
