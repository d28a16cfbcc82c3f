"""`check` tries the laws of users' classes: on rows that it makes up, or on rows that it is given."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from sessionlake import Event, Files, Groups, Pipeline, Sessions
from sessionlake.define.sections import Operator
from sessionlake.preflight.laws import law_problems

ROW = {"key": "a", "at": 1, "v": 3, "w": 0.5, "tag": "x", "ok": True}


def pipeline(root: Path, name: str, operator: Operator | None = None) -> Pipeline:
    events = root / "events"
    events.mkdir(exist_ok=True)
    (events / "a.json").write_text(json.dumps(ROW) + "\n")
    return Pipeline(
        "visits",
        warehouse="lake",
        directory=root,
        source=Files("events", format="json"),
        event=Event(key="key", time="at", time_unit="us", columns={"twice": "v * 2"}),
        operator=operator or Sessions(gap="1 hour"),
        aggregates={"mine": f"tests.aggregates.broken_classes:{name}", "n": "count()"},
    )


@pytest.mark.parametrize("name", ["Largest", "Mean", "Tags", "LongestText", "Total"])
def test_a_class_that_keeps_the_laws_is_not_warned_of(tmp_path: Path, name: str) -> None:
    found = pipeline(tmp_path, name).check()
    assert (found.problems, found.warnings) == ((), ())


@pytest.mark.parametrize("operator", [None, Groups()])
def test_a_class_that_breaks_one_is_a_warning_with_its_key(tmp_path: Path, operator: Operator | None) -> None:
    found = pipeline(tmp_path, "Newest", operator).check()
    assert found.ok
    (warning,) = found.warnings
    assert str(warning).startswith(
        "aggregates.mine: tests.aggregates.broken_classes:Newest, tried on made-up rows: merger("
    )


def test_rows_that_are_given_are_tried(tmp_path: Path) -> None:
    config = pipeline(tmp_path, "Newest").config
    same = pa.table({"key": ["a", "a", "b", "b"], "v": [1, 1, 2, 2]})
    assert law_problems(config, same, "key") == []
    (problem,) = law_problems(config, pa.table({"key": ["a", "a"], "v": [1, 2]}), "key")
    assert "tried on sample rows: merger(" in str(problem)
    assert law_problems(config, pa.table({"key": ["a", "a"]}), "key") == []


def test_it_takes_less_than_a_second(tmp_path: Path) -> None:
    config = pipeline(tmp_path, "Tags").config
    law_problems(config)
    begun = time.process_time()
    law_problems(config)
    assert time.process_time() - begun < 1
