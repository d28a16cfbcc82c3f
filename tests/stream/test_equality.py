"""Warehouses of before rule 465: which are refused, and how keys are asked for, without Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessionlake.stream.changes import Class, changes, refusal
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.delta_log import Commit
from tests.stream.equality_support import by_key, joined, last


@pytest.mark.parametrize("type_", ["double", "decimal128(10, 2)"])
@pytest.mark.parametrize(("setting", "event"), [("event.key", {}), ("event.id", {"key": "other", "id": "k"})])
def test_keys_and_ids_of_doubles_and_decimals_need_a_rebuild(
    tmp_path: Path, setting: str, event: dict[str, Any], type_: str
) -> None:
    config = by_key(tmp_path, **event)
    types = {"k": type_, "other": "string", "at": "int64"}
    (found,) = changes(config, last(config, types), {})
    assert (found.of, found.name) == (Class.REBUILD, setting)
    assert found.told.startswith(f"k is {type_.replace('decimal128', 'decimal')}, and equal values have one text now")
    told = str(refusal(config, last(config, types)))
    assert told.startswith(f"{setting}: k is ")
    assert "sessionlake rebuild CONFIG --warehouse NEW" in told
    assert "\n" not in told
    assert changes(config, last(config, types, by_value=True), {}) == []


def test_a_computed_key_counts_by_its_own_type(tmp_path: Path) -> None:
    config = by_key(tmp_path, columns={"k": "cast(k as double)"})
    assert [found.name for found in changes(config, last(config, {"k": "string"}, {"k": "double"}), {})] == [
        "event.key"
    ]


@pytest.mark.parametrize("type_", ["string", "int64", "bool", "date32[day]", "timestamp[us, tz=UTC]"])
def test_all_other_warehouses_go_on_without_a_word(tmp_path: Path, type_: str) -> None:
    config = by_key(tmp_path, ["k", "other"], id="k")
    assert changes(config, last(config, {"k": type_, "other": "string", "v": "double"}), {}) == []
    for operator in ("join", "table_join"):
        config = joined(tmp_path, operator)
        assert changes(config, last(config, {"left:x": type_, "right:y": type_, "left:v": "double"}), {}) == []


@pytest.mark.parametrize("operator", ["join", "table_join"])
@pytest.mark.parametrize(
    ("types", "columns"),
    [
        (("int64", "double"), ["y"]),
        (("decimal128(10, 2)", "decimal128(12, 3)"), ["x", "y"]),
        (("date32[day]", "timestamp[us, tz=UTC]"), ["x"]),
        (("timestamp[us, tz=UTC]", "date32[day]"), ["y"]),
    ],
)
def test_equal_fields_whose_pairs_change_need_a_rebuild(
    tmp_path: Path, operator: str, types: tuple[str, str], columns: list[str]
) -> None:
    config = joined(tmp_path, operator)
    found = changes(config, last(config, {"left:x": types[0], "right:y": types[1]}), {})
    assert [(change.name, change.told.split()[0]) for change in found] == [(f"{operator}.on", name) for name in columns]


@pytest.mark.parametrize("operator", ["join", "table_join"])
def test_a_cast_is_no_change_of_what_tables_are_bound_to(tmp_path: Path, operator: str) -> None:
    config = joined(tmp_path, operator)
    cast = config.section.model_copy(update={"on": ["cast(x as string) = y"]})
    before = last(config, {"left:x": "int64", "right:y": "string"})
    assert changes(config.model_copy(update={"section": cast}), before, {}) == []


def test_commits_say_that_keys_are_equal_by_value(tmp_path: Path) -> None:
    config = by_key(tmp_path)
    new, old = (last(config, {"k": "string"}, by_value=by_value) for by_value in (True, False))
    for commit in (new, old):
        read = BatchCommit.of(Commit(3, commit.metadata()), "sessions")
        assert read == replace(commit, version=3)
    assert "by_value" not in old.metadata()["settings"]
