"""A commit that loses a file's statistics keeps its length, its other lines, and all else of that line; and is never gone."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.jobs.forget.logs import _cut, replace_text
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


def add(path: str, low: str, rows: int, *, ascii_only: bool) -> str:
    stats = json.dumps({"numRecords": rows, "minValues": {"session_key": low}}, separators=(",", ":"))
    action = {"add": {"path": path, "partitionValues": {"a": low}, "size": 7, "dataChange": True, "stats": stats}}
    return json.dumps(action, ensure_ascii=ascii_only, separators=(",", ":"))


@given(TEXT, st.integers(0, 2**40), st.booleans(), st.sampled_from(["add", "remove"]))
def test_only_the_bounds_go(low: str, rows: int, ascii_only: bool, action: str) -> None:  # noqa: FBT001
    line = add("x", low, rows, ascii_only=ascii_only).replace('{"add"', f'{{"{action}"', 1)
    new = _cut(line, {"x"})
    assert len(new.encode()) == len(line.encode())
    before, after = json.loads(line)[action], json.loads(new)[action]
    assert json.loads(after.pop("stats")) == {"numRecords": rows}
    del before["stats"]
    assert after == before


@given(TEXT)
def test_lines_of_other_files_are_left_alone(low: str) -> None:
    for line in (add("y", low, 1, ascii_only=False), '{"remove":{"path":"x"}}', '{"commitInfo":{"a":1}}'):
        assert _cut(line, {"x"}) == line


def test_conditions_of_a_commit_go_as_a_whole() -> None:
    line = '{"commitInfo":{"operation":"DELETE","operationParameters":{"predicate":"[\\"(session_key#1 = bob)\\"]"}}}'
    new = _cut(line, {""})
    assert len(new) == len(line)
    assert json.loads(new) == {"commitInfo": {"operation": "DELETE", "operationParameters": {}}}
    assert _cut(line, {"x"}) == line


def test_a_file_is_replaced_at_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between any two steps the old text is there and can be read, though the checksum beside it is Hadoop's."""
    tables, file = Tables(spark, str(tmp_path), CHANGELOG), tmp_path / "0.json"
    tables.write_text_once(str(file), "old")
    assert (tmp_path / ".0.json.crc").exists()
    os.utime(file, (1_000, 1_000))
    with crash_at(monkeypatch, "forget_before_rename"), pytest.raises(CrashError):
        replace_text(tables, str(file), "new")
    assert tables.read_text(str(file)) == "old"
    (left,) = tmp_path.glob("0.json.*.forget.tmp")
    replace_text(tables, str(file), "new")
    assert tables.read_text(str(file)) == "new"
    assert file.stat().st_mtime == 1_000
    # Of another run at the same time: nobody else's file is touched.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", left.name]
