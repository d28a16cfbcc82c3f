"""What commits say of a table's past, by the text of commit files alone."""

import json
from typing import Any

import pytest

from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.history import (
    FORMAT,
    OLDEST_FORMAT,
    ForeignChange,
    foreign_change,
    our_metadata,
    stamp,
    user_metadata,
)

OURS = {"userMetadata": user_metadata({"batch_id": 1})}
ADD = {"add": {"path": "f", "dataChange": True}}
REMOVE = {"remove": {"path": "f", "dataChange": True}}
MOVED = {"add": {"path": "f", "dataChange": False}}
Commit = tuple[str, dict[str, Any], list[dict[str, Any]]]
BATCH: Commit = ("WRITE", OURS, [ADD])
TRIM: Commit = ("DELETE", OURS, [REMOVE])
OPTIMIZE: Commit = ("OPTIMIZE", {}, [MOVED])


def restore(version: int | None) -> Commit:
    return "RESTORE", {"operationParameters": {"version": version, "timestamp": None}}, [ADD, REMOVE]


def found(*commits: Commit, good: int = 4) -> tuple[int, str, int | None] | None:
    texts = []
    for version, (operation, info, actions) in enumerate(commits, good + 1):
        lines = [{"commitInfo": {"operation": operation, **info}}, *actions]
        texts.append((version, "\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n"))
    change = foreign_change("t", texts, good)
    return None if change is None else (change.version, change.operation, change.restorable)


@pytest.mark.parametrize("operation", ["RESTORE", "DELETE", "UPDATE", "MERGE", "WRITE", "TRUNCATE"])
def test_foreign_change_of_rows_is_found(operation: str) -> None:
    assert found(BATCH, (operation, {}, [REMOVE])) == (6, operation, 5)
    assert found(BATCH, (operation, {"userMetadata": "somebody's"}, [ADD])) == (6, operation, 5)


def test_ours_and_what_changes_no_row_are_not() -> None:
    nothing: Commit = ("SET TBLPROPERTIES", {}, [])
    assert found(BATCH, TRIM, OPTIMIZE, nothing, ("VACUUM START", {}, []), BATCH) is None


def test_restore_undoes_a_foreign_change_only_to_the_rows_before_it() -> None:
    delete: Commit = ("DELETE", {}, [REMOVE])
    assert found(BATCH, delete, restore(5)) is None
    assert found(BATCH, OPTIMIZE, delete, OPTIMIZE, restore(5)) is None
    assert found(BATCH, OPTIMIZE, delete, restore(6), delete) == (9, "DELETE", 8)
    assert found(BATCH, BATCH, delete, restore(5)) == (7, "DELETE", 6)
    assert found(BATCH, BATCH, delete, restore(None)) == (7, "DELETE", 6)


def test_restore_that_would_lose_a_batch_is_none() -> None:
    assert found(BATCH, restore(3), BATCH, restore(5)) == (6, "RESTORE", None)


def test_explanation_says_what_to_do() -> None:
    text = ForeignChange("sessions", 7, "RESTORE", 6).explained("/w/sessions")
    assert "'sessions': version 7 is a RESTORE" in text
    assert "`restore table delta.`/w/sessions` to version as of 6`" in text
    assert "rebuild" in ForeignChange("sessions", 7, "RESTORE", None).explained("/w/sessions")


def test_every_commit_of_ours_names_its_format() -> None:
    assert our_metadata(user_metadata({"a": 1}), "t") == {"a": 1, **stamp()}


def test_identities_under_a_secret_are_read_by_no_release_that_does_not_know_of_it() -> None:
    """Such a release would find no duplicate. A pipeline without `unique_for` has none, and can go back."""
    secret = {"unique_secret": "00ff"}
    for settings, number in ((secret, OLDEST_FORMAT), ({**secret, "unique_since": {"events": 0}, "layouts": [1]}, 5)):
        written = our_metadata(user_metadata({"settings": settings}), "t")
        assert written is not None
        assert written["format"] == number


def test_metadata_of_a_newer_format_is_refused() -> None:
    newer = json.dumps({"sessionlake": {"format": FORMAT + 1, "written_by": "9.9"}})
    with pytest.raises(PipelineStateError, match=rf"table 't': is of format {FORMAT + 1}, .*install sessionlake 9.9"):
        our_metadata(newer, "t")


@pytest.mark.parametrize("metadata", [{}, {"format": OLDEST_FORMAT - 1}])
def test_metadata_of_an_older_format_is_refused_with_the_remedy(metadata: dict[str, Any]) -> None:
    older = json.dumps({"sessionlake": metadata})
    with pytest.raises(PipelineStateError, match=r"`sessionlake rebuild CONFIG --warehouse NEW`$"):
        our_metadata(older, "t")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "1", '{"other": 1}', '{"sessionlake": 5}'])
def test_metadata_of_others_is_none(text: str | None) -> None:
    assert our_metadata(text, "t") is None
