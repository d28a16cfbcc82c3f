"""Warehouses of before rule 460, whose columns may have dots in their names, without Spark: a dot means a field now."""

from dataclasses import replace
from pathlib import Path

from sessionlake.stream.changes import Class, changes, refusal
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.delta_log import Commit
from tests.stream.equality_support import by_key, last

TYPES = {"user.id": "string", "at": "int64"}


def test_a_column_with_a_dot_needs_a_rebuild(tmp_path: Path) -> None:
    # Without backquotes the config would read a field, and all keys would be null.
    config = by_key(tmp_path, key="user.id")
    before = last(config, TYPES)
    (found,) = changes(config, before, {})
    assert (found.of, found.before, found.after) == (Class.REBUILD, "user.id", "`user.id`")
    told = str(refusal(config, before))
    assert told.startswith(
        "event: 'user.id' is a column's name with a dot, and a dot means a field now (rule 460); write it in backquotes"
    )
    assert "sessionlake rebuild CONFIG --warehouse NEW" in told


def test_fields_of_later_batches_are_no_change(tmp_path: Path) -> None:
    config = by_key(tmp_path, key="user.id")
    before = last(config, TYPES)
    now = replace(before, settings=replace(before.settings, paths=True))
    assert changes(config, now, {}) == []
    assert BatchCommit.of(Commit(3, now.metadata()), "sessions").settings.paths
    assert "paths" not in before.metadata()["settings"]
