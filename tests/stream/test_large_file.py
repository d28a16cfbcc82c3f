"""One large file a batch is read by as many tasks as there are cores, and nothing of what comes out tells."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionlake import read_sessions
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.decoding import pieces
from sessionlake.sources.decoding.files import NUMBER, PARTS
from sessionlake.sources.planned_files import PlannedFiles
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.support import make_config, write_rows

EVENTS: list[Any] = [{"key": f"k{i % 7}", "time_us": 1000 + 3 * i, "v": i} for i in range(60)]
BAD = ["{", '{"key": "", "time_us": 1}', '{"key": "a", "time_us": "never"}']
ROWS = [row for i, event in enumerate(EVENTS) for row in ([event, BAD[i % 3]] if i % 9 == 0 else [event])]


def outcome(spark: SparkSession, root: Path, rows: list[Any], format_: str, least_bytes: int) -> Any:
    """Run over one file, and one of later corrections and events; return all that users see, and how the file was read."""
    root.mkdir()
    config = make_config(root, source={"format": format_})
    if format_ == "parquet":
        table = pa.Table.from_pylist([row for row in rows if isinstance(row, dict)])
        pq.write_table(table, root / "events" / "f.parquet", row_group_size=11)
    else:
        write_rows(root, "f.json", rows)
    read: list[tuple[list[Any], int]] = []
    as_planned = PlannedFiles.rows

    def seen(self: PlannedFiles, *args: Any) -> DataFrame:
        found = as_planned(self, *args)
        parts = [name for name in (NUMBER, PARTS) if name in found.columns]
        read.append(([tuple(row) for row in found.select(*parts).collect()], found.rdd.getNumPartitions()))
        return found

    with patch.object(pieces, "_LEAST_BYTES", least_bytes), patch.object(PlannedFiles, "rows", seen):
        run(spark, config, once=True)
        tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
        key, start, revision = (
            read_sessions(spark, config)
            .orderBy("session_key", "session_start")
            .selectExpr("session_key", "session_start", "revision")
            .head()
        )
        tombstone = {"correction_id": "c", "kind": "tombstone", "key": key, "start_time": start}
        frame = spark.createDataFrame([{**tombstone, "revision": revision}], tables[schemas.CORRECTIONS].read().schema)
        frame.write.format("delta").mode("append").save(tables[schemas.CORRECTIONS].uri)
        if format_ == "json":
            write_rows(root, "g.json", [{"key": "more", "time_us": 1175, "v": 1}] * 30)
            run(spark, config, once=True)
    dead = tables[schemas.DEAD_LETTERS].read().select("reason", "raw", "source").collect()
    sessions = read_sessions(spark, config).drop("committed_at", "commit_id")
    told = {(row.reason, row.raw, (row.source or "").replace(str(root), "")) for row in dead}
    return sorted(map(str, sessions.collect())), told, read


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_in_parts_as_in_one(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    whole = outcome(spark, tmp_path / "whole", ROWS, format_, 1 << 40)
    parts = outcome(spark, tmp_path / "parts", ROWS, format_, 10)
    assert parts[:2] == whole[:2]
    assert len(parts[1]) == (7 if format_ == "json" else 0)
    assert {row for rows, _ in whole[2] for row in rows} == {()}
    first, tasks = parts[2][0]
    assert (sorted(first), tasks) == ([(0, 2), (1, 2)], 2)
    if format_ == "json":  # beside a correction
        assert sorted(parts[2][1][0]) == [(0, 1), (0, 2), (1, 2)]
