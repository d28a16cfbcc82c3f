"""A config that its tables were not made with, told without Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import Config
from sessionlake.stream.settings import refusal
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from tests.support import make_config

SESSION = {"gap": "10 minutes", "grace": "5 minutes", "retention": "2 hours"}


def last(config: Config, **changed: Any) -> BatchCommit:
    settings = Settings({**config.rebuild_settings(), **changed}, {}, {})
    return BatchCommit(config.pipeline.name, "c", 7, "x", {}, {}, (), "1", settings, None, 0, 0)


@pytest.mark.parametrize(
    ("name", "before", "told"),
    [
        ("session.gap", 1_800_000_000, "session.gap: changed from '30 minutes' to '10 minutes' on existing sessions; "),
        (
            "session.max_length",
            3_600_000_000,
            "session.max_length: is gone, and was '1 hour' on existing sessions; ",
        ),
        ("event.key", "device", "event.key: changed from 'device' to 'user' on existing sessions; "),
    ],
)
def test_what_changed_is_told_in_the_configs_words(tmp_path: Path, name: str, before: Any, told: str) -> None:
    config = make_config(tmp_path, session=SESSION)
    config = config.model_copy(update={"event": config.event.model_copy(update={"key": "user"})})
    assert str(refusal(config, last(config, **{name: before}))).startswith(told)


def test_what_a_run_would_take_is_not_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, session=SESSION)
    assert refusal(config, last(config)) is None
    assert refusal(make_config(tmp_path, session={**SESSION, "grace": "6 minutes"}), last(config)) is None


def test_the_warehouse_of_another_pipeline(tmp_path: Path) -> None:
    config = make_config(tmp_path, session=SESSION)
    assert "belongs to pipeline 'other'" in str(refusal(config, replace(last(config), pipeline="other")))
