"""Two drivers that plan one batch where the file system lets both write its offsets: the one whose offsets are gone stops."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import FencedError
from sessionlake.jobs.apply import stream_elsewhere
from sessionlake.operators.run import run
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import crash_at
from tests.support import make_config, write_rows


def plan_another(file: Path) -> None:
    """Write other offsets into a batch's file, as a second driver would that had found it missing."""
    version, settings, *offsets = file.read_text().splitlines()
    clock = {**json.loads(settings), "batchTimestampMs": 1}
    file.write_text("\n".join([version, json.dumps(clock), *offsets]))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_offsets_of_another_driver_stop_the_batch_before_it_is_computed_and_before_its_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path)
    write_rows(tmp_path, "0.json", [{"key": "a", "time_us": 0, "v": 1}])
    tables, offsets = Tables(spark, config.pipeline.warehouse, CHANGELOG), Path(config.checkpoint) / "offsets" / "0"
    theirs = crash_at(monkeypatch, "computed", 1, lambda: plan_another(offsets))
    with (
        theirs,
        pytest.raises(FencedError, match="another driver has planned batch 0 of 'test' while this one computed"),
    ):
        run(spark, config, once=True)
    assert tables[schemas.CHANGELOG].last_commit() is None
    plan_another(offsets)

    read_text, read = Tables.read_text, []

    def overtaken(self: Tables, uri: str) -> str | None:
        read.append(uri)
        if uri.endswith("/offsets/1"):
            plan_another(Path(uri))
        return read_text(self, uri)

    # What is planned by now is what a start goes on from, whoever planned it.
    write_rows(tmp_path, "1.json", [{"key": "b", "time_us": 1, "v": 1}])
    monkeypatch.setattr(Tables, "read_text", overtaken)
    with pytest.raises(FencedError, match="offsets of batch 1 of 'test' are another driver's"):
        run(spark, config, once=True)
    monkeypatch.setattr(Tables, "read_text", read_text)
    last = last_batch(tables)
    assert last.batch_id == 0
    assert read.count(str(offsets)) == 2, "a batch's offsets are read once before it runs and once before its commit"

    # A job's own pass gives way to a driver on another host while that one's last commit is young.
    committed = last.committed_us
    assert stream_elsewhere(spark, config, committed + 1) is None
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert stream_elsewhere(spark, config, committed + 1) == last.driver
    assert stream_elsewhere(spark, config, committed + 60_000_000) is None
