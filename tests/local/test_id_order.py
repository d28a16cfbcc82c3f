"""Ties between ids that are numbers are decided by number, without Spark (docs/rules.md, rule 465)."""

from typing import Any

import pytest

from sessionlake.testing import Harness

FILES = {"kind": "files", "path": "events", "format": "json"}


def ordered(values: list[Any], schema: dict[str, str] | None = None) -> dict[str, Any]:
    config = {
        "source": FILES,
        "event": {"key": "k", "time": "at", "time_unit": "us", "id": "id"},
        "session": {"gap": "1 hour"},
        "aggregates": {
            "first": "first(v)",
            "last": "last(v)",
            "most": "max_by(v, one)",
            "every": "collect(v, 9)",
            "set": "collect_set(v, 9)",
            "text": "string_agg(v, '>', 9)",
        },
    }
    rows = [{"k": "a", "at": 0, "id": value, "v": str(value), "one": 1} for value in values]
    with Harness(config, schema=schema) as harness:
        for row in rows:
            changes = harness.process([row]).changes
    return {name: changes[-1][name] for name in config["aggregates"]}


def test_ties_of_ids_that_are_numbers_are_decided_by_number() -> None:
    assert ordered([99, 100, 9, 10]) == {
        "first": "9",
        "last": "100",
        "most": "9",
        "every": ["9", "10", "99", "100"],
        "set": ["9", "10", "99", "100"],
        "text": "9>10>99>100",
    }
    assert ordered(["99", "100", "9", "10"])["every"] == ["10", "100", "9", "99"]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("ids", [(9, 10), (99, 100), (1, 2), (-2, -1), (0.5, 10.0)])
def test_the_greater_number_holds_in_a_table(ids: tuple[Any, Any], batches: int) -> None:
    config = {
        "source": FILES,
        "event": {"key": "flight", "time": "at", "time_unit": "us", "id": "id"},
        "table": {"columns": ["status"]},
    }
    rows = [
        {"flight": "LH1", "at": 0, "id": id_, "status": status}
        for id_, status in zip(ids, ("boarding", "departed"), strict=True)
    ]
    for given_rows in (rows, rows[::-1]):
        changes = []
        with Harness(config) as harness:
            for batch in [given_rows] if batches == 1 else [[row] for row in given_rows]:
                changes += harness.process(batch).changes
        assert changes[-1]["status"] == "departed"
