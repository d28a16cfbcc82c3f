"""The page's look at the pipelines goes on, whatever one of them has."""

import json
import time
from pathlib import Path

import pytest

from sessionlake.config.project import load_project
from sessionlake.observe.overview import Overview, State, overview
from sessionlake.observe.watch import Watch
from sessionlake.project import board as module
from sessionlake.project.board import Board
from tests.airflow.support import wait_for
from tests.project.project_support import write_project
from tests.support import make_config


def test_an_error_that_nobody_foresaw_is_a_pipeline_that_can_not_be_read(tmp_path: Path) -> None:
    def nested() -> None:
        json.loads("[" * 100_000)

    one = overview(make_config(tmp_path), nested)  # type: ignore[arg-type]
    assert (one.state, one.told[:16]) == (State.UNREADABLE, "RecursionError: ")


def test_the_thread_looks_at_all_again_after_such_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    project = load_project(write_project(tmp_path))
    looks: list[str] = []

    def look(watch: "Watch[object]") -> object:
        looks.append(watch._config.pipeline.name)
        raise RecursionError("too deep")

    monkeypatch.setattr(Watch, "look", look)
    # Not even the locks of the drivers can be looked at.
    monkeypatch.setattr(module, "overview", lambda _, read: read())
    board = Board(str(tmp_path), project.configs, project.graph, {})
    board.start()
    try:
        board._asked = float("inf")
        wait_for(lambda: len(looks) > 3 * len(project.configs), 30)
        assert {one.told for one in board._seen.values()} == {"RecursionError: too deep"}
        assert {*looks} == {*project.configs}
    finally:
        board.stop()


def test_what_was_seen_before_nobody_watched_is_not_shown(tmp_path: Path) -> None:
    """Looked at while the streams started, it said for two seconds that they start, however long they had been running."""
    project = load_project(write_project(tmp_path))
    board = Board(str(tmp_path), project.configs, project.graph, dict.fromkeys(project.configs, NoBatches()))  # type: ignore[arg-type]
    board._seen = {name: Overview(name, config, State.STARTING, None, "") for name, config in project.configs.items()}
    board._asked = time.monotonic()
    assert {one["state"] for one in board.fields()["pipelines"]} == {"starting"}
    board._asked -= module._WATCHED_S + 1
    assert {one["state"] for one in board.fields()["pipelines"]} == {"unknown"}
    assert board._woken.is_set()
    board.start()
    try:
        wait_for(lambda: {one["state"] for one in board.fields()["pipelines"]} == {"new"}, 30)
    finally:
        board.stop()


class NoBatches:
    """A follower of a pipeline without batches."""

    history: tuple[()] = ()
