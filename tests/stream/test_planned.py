"""Two drivers that plan one batch where the file system lets both write its offsets: the one whose offsets are gone stops."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.jobs.apply import stream_elsewhere
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
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


@pytest.mark.slow
def test_offsets_that_are_written_over_lose_no_version_of_a_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a committed batch, and of one with side rows: a second driver saw one version more. Events were lost unseen."""
    config = make_config(
        tmp_path, source={"kind": "delta", "path": "events", "format": None, "max_files_per_batch": None}
    )
    tables, changelog = (
        Tables(spark, config.pipeline.warehouse, CHANGELOG),
        f"{config.pipeline.warehouse}/{CHANGELOG.changes}",
    )

    def append(*rows: tuple[str | None, int]) -> None:
        keys, times = zip(*rows, strict=True)
        table = pa.table({"key": pa.array(keys, pa.string()), "time_us": times, "v": [1] * len(rows)})
        write_deltalake(str(tmp_path / "events"), table, mode="append")

    def sessions() -> list[str]:
        return sorted(DeltaTable(changelog).to_pyarrow_table()["session_key"].to_pylist())

    @contextmanager
    def one_version_on(batch_id: int) -> Iterator[None]:
        file = Path(config.checkpoint) / "offsets" / str(batch_id)
        text = file.read_text()
        version, settings, offset, *others = text.splitlines()
        later = json.loads(offset)
        later["reservoirVersion"] += 1
        file.write_text("\n".join([version, settings, json.dumps(later), *others]))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        yield
        file.write_text(text)

    append(("ann", 0))
    run(spark, config, once=True)
    with one_version_on(0):
        append(("bob", 20))
        append(("cid", 40))
        with pytest.raises(PipelineStateError, match="is not what batch 0 of 'test' has read: another driver wrote it"):
            run(spark, config, once=True)
        assert sessions() == ["ann"]
    run(spark, config, once=True)
    assert sessions() == ["ann", "bob", "cid"]

    append(("dan", 60), (None, 60))
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(StreamingQueryException, match="before_changelog"):
        run(spark, config, once=True)
    interrupted = last_batch(tables).batch_id + 1
    with one_version_on(interrupted):
        append(("eve", 80))
        with pytest.raises(
            PipelineStateError, match=f"batch {interrupted} of 'test' was interrupted, and its offsets are"
        ):
            run(spark, config, once=True)
    run(spark, config, once=True)
    assert sessions() == ["ann", "bob", "cid", "dan", "eve"]
    assert [row["raw"] is not None for row in tables[schemas.DEAD_LETTERS].read().collect()] == [True]
    assert read_status(config).reconciles
