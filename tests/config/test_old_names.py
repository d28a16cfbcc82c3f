"""Keys that have another name now: the old one goes on, with a line."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import Config, load_config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.preflight.check import check
from sessionlake.standalone import JoinWindow
from sessionlake.stream.changes import changes
from sessionlake.testing import JoinHarness
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.delta_log import Commit

SOURCE = {"kind": "files", "path": "events", "format": "json"}
EVENT = {"key": "k", "time": "at", "time_unit": "us"}
WINDOW = {"kind": "tumbling", "size": "1 hour", "grace": "1 hour"}
TOLD = "retention_time: is called retention now; write retention, the old name will go"


def windows(tmp_path: Path, **retention: str) -> Config:
    section = {"window": {**WINDOW, **retention}, "source": SOURCE, "event": EVENT, "aggregates": {"n": "count()"}}
    return parse_config({"pipeline": {"name": "p", "warehouse": "w"}, **section}, tmp_path)


def sides(**left: Any) -> dict[str, Any]:
    side = {"columns": ["v"], "source": SOURCE, "event": {"time": "at", "time_unit": "us"}}
    return {"left": {"name": "a", **side, **left}, "right": {"name": "b", "size": "1 hour", **side}}


def joined(tmp_path: Path, **join: Any) -> Config:
    section = {"on": ["id"], "type": "left", "idle": "1 minute", **join, **sides(size="unbounded")}
    return parse_config({"pipeline": {"name": "p", "warehouse": "w"}, "join": section}, tmp_path)


def test_the_old_name_means_the_same_and_is_told(tmp_path: Path) -> None:
    now, old = windows(tmp_path, retention="1 day"), windows(tmp_path, retention_time="1 day")
    assert old.section.model_dump() == now.section.model_dump()
    assert (now.warnings(), old.warnings()) == ([], [f"window.{TOLD}"])
    # A copy with other settings was given by the same name.
    assert old.with_grace(5).warnings() == [f"window.{TOLD}"]
    assert joined(tmp_path, retention_time="1 day").warnings() == [f"join.{TOLD}"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"retention": "1 day", "retention_time": "1 day"}, "window.retention_time: "),
        ({"retention_time": "a day"}, "window.retention_time: 'a day' is not a duration"),
        ({"retention_time": 5}, "window.retention_time: "),
        ({}, "window.retention: is missing"),
        ({"retention_times": "1 day"}, "window.retention_times: is unknown (did you mean 'retention'?)"),
    ],
)
def test_a_wrong_value_is_told_by_the_name_that_was_written(tmp_path: Path, given: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        windows(tmp_path, **given)
    assert told in str(raised.value)


def test_check_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "p.toml").write_text(
        '[pipeline]\nname = "p"\nwarehouse = "w"\n[source]\nkind = "files"\npath = "events"\nformat = "json"\n'
        'types = { k = "string", at = "long" }\n[event]\nkey = "k"\ntime = "at"\ntime_unit = "us"\n'
        '[window]\nkind = "tumbling"\nsize = "1 hour"\nretention_time = "1 day"\n[aggregates]\nn = "count()"\n'
    )
    assert [(w.key, w.line) for w in check(tmp_path / "p.toml").warnings if w.key == "window.retention_time"] == [
        ("window.retention_time", 16)
    ]
    assert load_config(tmp_path / "p.toml").retention_us == 86_400_000_000


def test_a_commit_with_the_old_name_is_of_the_same_settings(tmp_path: Path) -> None:
    config = joined(tmp_path, retention="1 day", grace="1 hour")
    settings = Settings(config.rebuild_settings(), config.live_settings(), {}, graced=True)
    commit = BatchCommit("p", "c", 7, "x", {}, {}, (None,) * 4, "1", settings, None, 0, 0)
    metadata = commit.metadata()
    bound = metadata["settings"]["rebuild"]
    bound["join.retention_time"] = bound.pop("join.retention")
    read = BatchCommit.of(Commit(3, metadata), "join_changelog")
    assert changes(config, read, {}) == []
    (change,) = changes(joined(tmp_path, retention="2 days", grace="1 hour"), read, {})
    assert (change.name, change.told.partition(":")[0]) == ("join.retention", "'1 day' -> '2 days'")


def test_python_takes_the_old_name_with_a_warning(tmp_path: Path) -> None:
    both = {"left": {"name": "a", "size": "1 us"}, "right": {"name": "b", "size": "1 us"}}
    with pytest.warns(DeprecationWarning, match="retention_time: is called retention now"):
        JoinHarness(on=["id"], **both, retention_time="1 day")
    with (
        pytest.warns(DeprecationWarning, match="retention_time: is called retention now"),
        JoinWindow(tmp_path / "j", on=["id"], **both, retention_time="1 day"),
    ):
        pass
    with pytest.raises(ConfigError, match="retention_time: is the old name of retention, which is given, too"):
        JoinWindow(tmp_path / "k", on=["id"], **both, retention="1 day", retention_time="1 day")
