"""A changelog or snapshot that somebody put back or changed: refused in one line, and mended as that line says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import PipelineStateError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.forget import forget
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.reading import read_sessions
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import check_history
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import crash_at
from tests.support import make_config, write_rows


def event(key: str, time_us: int) -> dict[str, object]:
    return {"key": key, "time_us": time_us, "v": 1}


def keys(spark: SparkSession, config: object) -> set[str]:
    return {row.session_key for row in read_sessions(spark, config).collect()}  # type: ignore[arg-type]


@pytest.mark.slow
def test_restored_changelog_is_refused_until_the_restore_is_undone(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    for number, key in enumerate("abc"):
        write_rows(tmp_path, f"{number}.json", [event(key, number)])
    run(spark, config, once=True)
    assert read_status(config).reconciles
    newest, name = tables[schemas.CHANGELOG].latest_version(), tables[schemas.CHANGELOG].sql_name()
    spark.sql(f"restore table {name} to version as of {newest - 1}").collect()

    write_rows(tmp_path, "3.json", [event("d", 3)])
    told = rf"version {newest + 1} is a RESTORE .*to version as of {newest}`"
    with pytest.raises(PipelineStateError, match=told):
        run(spark, config, once=True)
    with pytest.raises(PipelineStateError, match=told):
        compact(spark, config)
    assert keys(spark, config) == set("ab")
    assert not read_status(config).reconciles

    spark.sql(f"restore table {name} to version as of {newest}").collect()
    run(spark, config, once=True)
    assert keys(spark, config) == set("abcd")
    assert read_status(config).reconciles


def test_running_stream_notices_before_its_next_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    for number, key in enumerate("ab"):
        write_rows(tmp_path, f"{number}.json", [event(key, number)])

    def delete() -> None:
        spark.sql(f"delete from {tables[schemas.CHANGELOG].sql_name()} where session_key = 'a'")

    # Version 1 is the driver's term, version 2 the first batch.
    told = r"version 3 is a DELETE .*to version as of 2`"
    with crash_at(monkeypatch, "before_changelog", 2, delete), pytest.raises(PipelineStateError, match=told):
        run(spark, config, once=True)
    last = tables[schemas.CHANGELOG].last_commit()
    assert last is not None
    assert last.metadata["batch_id"] == 0


@pytest.mark.slow
def test_our_own_maintenance_is_not_foreign(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path, compact={"safety": "0 seconds"})
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    for number, key in enumerate("abc"):
        write_rows(tmp_path, f"{number}.json", [event(key, number)])
    run(spark, config, once=True)
    compact(spark, config, method="merge")
    write_rows(tmp_path, "3.json", [event("a", 100)])
    run(spark, config, once=True)
    compact(spark, config, method="rewrite")
    forget(spark, config, ["b"])
    operations = set()
    for name in (schemas.CHANGELOG, schemas.SESSIONS):
        infos = [tables[name].commit_info(version) or {} for version in tables[name].versions()]
        operations |= {info["operation"] for info in infos}
        assert tables[name].foreign_change(after=-1) is None
    assert {"WRITE", "MERGE", "DELETE", "VACUUM START"} <= operations
    check_history(tables, [tables.changelog])


def test_commit_without_a_field_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    write_rows(tmp_path, "0.json", [event("a", 0)])
    run(spark, config, once=True)
    log = Path(config.pipeline.warehouse) / schemas.CHANGELOG / "_delta_log"
    file = log / f"{2:020d}.json"
    file.write_text(file.read_text().replace(r"\"layout\":", r"\"other\":"))
    (log / f".{file.name}.crc").unlink()
    with pytest.raises(PipelineStateError, match="version 2, of batch 0, lacks 'layout'"):
        run(spark, config, once=True)
