"""`check` tries the laws of users' classes: on the first events, or on rows that it makes up."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sessionlake import Event, Files, Groups, Pipeline, Sessions
from sessionlake.define.sections import Operator
from sessionlake.preflight.laws import law_problems
from sessionlake.preflight.sources import sources_without_spark

ROW = {"key": "a", "at": 1, "v": 3, "w": 0.5, "tag": "x", "ok": True}


def pipeline(root: Path, name: str, operator: Operator | None = None, rows: Sequence[Any] = (ROW,)) -> Pipeline:
    events = root / "events"
    events.mkdir(exist_ok=True)
    (events / "a.json").write_text("\n".join(map(json.dumps, rows)))
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


def test_the_first_events_are_tried_and_of_one_key_together(tmp_path: Path) -> None:
    """`Newest` breaks a law if two events of a key differ in `v`, and `twice` is computed."""
    same = [{**ROW, "key": key, "v": v} for key, v in (("a", 1), ("a", 1), ("b", 2), ("b", 2))]
    assert pipeline(tmp_path, "Newest", rows=same).check().warnings == ()
    (warning,) = pipeline(tmp_path, "Newest", rows=[ROW, {**ROW, "v": 2}]).check().warnings
    assert "tried on sample rows: merger(" in str(warning)


def test_it_takes_less_than_a_second(tmp_path: Path) -> None:
    config = pipeline(tmp_path, "Tags").config
    sources = sources_without_spark(config)
    law_problems(config, sources)
    begun = time.process_time()
    law_problems(config, sources)
    assert time.process_time() - begun < 1
