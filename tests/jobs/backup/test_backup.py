"""Backups of a running pipeline: taken in mid-batch, cut off, put back, cut off again; then nothing is lost or doubled."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import JobError, PipelineStateError
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.backup.manifest import CHECKPOINT, INCOMPLETE, MANIFEST, WAREHOUSE
from sessionlake.warehouse import schemas
from sessionlake.warehouse.history import FORMAT
from tests.engine.crash_support import (
    CrashError,
    Lake,
    assert_killed,
    assert_reconciles,
    assert_same,
    crash_at,
    half_done,
    run_once,
)


@pytest.mark.slow
def test_backup_in_mid_batch_and_restore_each_cut_off_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, saved = Lake(tmp_path / "lake", tmp_path / "events"), tmp_path / "saved"
    made = []
    lake.write_files(range(1))
    run_once(spark, lake)
    lake.write_files(range(1, 2))

    def save() -> None:
        """Save while a batch has committed its dead letters but not itself: they must not be in."""
        with crash_at(monkeypatch, "backup_file_copied", 9), pytest.raises(CrashError):
            backup(spark, lake.config, str(saved))
        with pytest.raises(JobError, match="is half-made; run `sessionlake backup` with it again"):
            restore(spark, lake.config, str(saved))
        made.append(backup(spark, lake.config, str(saved)))

    with crash_at(monkeypatch, "after_dead", 1, save):
        run_once(spark, lake)
    assert made[0].batch_id == 0
    assert stat.S_IMODE(saved.stat().st_mode) == 0o700
    with pytest.raises(JobError, match="is not empty; choose a new directory"):
        backup(spark, lake.config, str(saved))
    with pytest.raises(JobError, match="is not empty; move it away"):
        restore(spark, lake.config, str(saved))

    other = Lake(tmp_path / "other", lake.events)
    with crash_at(monkeypatch, "restore_file_copied", 20), pytest.raises(CrashError):
        restore(spark, other.config, str(saved))
    with pytest.raises(PipelineStateError, match="is half restored from a backup; run `sessionlake restore` again"):
        run_once(spark, other)
    assert restore(spark, other.config, str(saved)) == made[0]
    assert [c["batch_id"] for c in other.commits()] == [0]
    assert_reconciles(other)
    run_once(spark, other)
    assert_same(other, lake)

    damaged = next((saved / "warehouse" / schemas.CHANGELOG).glob("*.parquet"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    damaged.with_name(f".{damaged.name}.crc").unlink()
    third = Lake(tmp_path / "third", lake.events)
    with pytest.raises(JobError, match=r"file 'warehouse/session_changelog/.*parquet' of .* is damaged"):
        restore(spark, third.config, str(saved))
    damaged.unlink()
    with pytest.raises(JobError, match=r"parquet' of .* is missing"):
        restore(spark, third.config, str(saved))


def test_backup_of_another_pipeline_or_a_newer_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake, saved = Lake(tmp_path / "lake", tmp_path / "events"), tmp_path / "saved"
    saved.mkdir()
    with pytest.raises(JobError, match=f"holds no {MANIFEST}"):
        restore(spark, lake.config, str(saved))
    raw = {"pipeline": "p", "batch_id": 1, "commit_id": "c", "saved_us": 1, "versions": {}, "files": []}
    raw |= {"format": FORMAT, "written_by": "0.2.0"}

    def refused(kind: type[Exception], message: str, **more: object) -> None:
        (saved / MANIFEST).write_text(json.dumps({**raw, **more}))
        (saved / f".{MANIFEST}.crc").unlink(missing_ok=True)
        with pytest.raises(kind, match=message):
            restore(spark, lake.config, str(saved))

    refused(JobError, "is a backup of pipeline 'p', not 'crash'")
    refused(PipelineStateError, "is of format 99", format=99, written_by="9.9")
    refused(PipelineStateError, "sessionlake rebuild CONFIG --warehouse NEW", format=1)
    refused(JobError, f"has a damaged {MANIFEST}", other=1)
    with pytest.raises(JobError, match="is in the warehouse that it is to save"):
        backup(spark, lake.config, f"{lake.warehouse}/saved")


@pytest.mark.slow
def test_killed_backup_and_restore(spark: SparkSession, tmp_path: Path) -> None:
    lake, saved = half_done(spark, tmp_path), tmp_path / "saved"
    run_once(spark, lake)
    other = Lake(tmp_path / "other", lake.events)

    def call(command: str, of: Lake, kill_at: str = "") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **({"SESSIONLAKE_KILL_AT": kill_at} if kill_at else {})}
        program = str(Path(sys.executable).with_name("sessionlake"))
        arguments = [program, command, str(of.path), str(saved)]
        return subprocess.run(arguments, env=env, capture_output=True, text=True, timeout=400, check=False)

    assert_killed(call("backup", lake, "backup_file_copied:9"))
    assert (saved / INCOMPLETE).exists()
    done = call("backup", lake)
    assert (done.returncode, "saved pipeline crash as of batch 3" in done.stdout) == (0, True), done.stderr
    # Hadoop's file system writes a hidden checksum beside each file.
    files = [file for part in (CHECKPOINT, WAREHOUSE) for file in (saved / part).rglob("*") if file.name[0] != "."]
    sizes = [file.stat().st_size for file in files if file.is_file()]
    counts = {"batch_id": 3, "files": len(sizes), "bytes": sum(sizes)}
    assert json.loads(done.stdout.splitlines()[-1]) == {"job": "backup", **counts}
    assert_killed(call("restore", other, "restore_file_copied:40"))
    done = call("restore", other)
    assert (done.returncode, "goes on with batch 4" in done.stdout) == (0, True), done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"job": "restore", **counts}
    run_once(spark, other)
    assert_same(other, lake)
