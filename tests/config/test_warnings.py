"""How far ahead one event may be before it makes events of now late: by each operator's own rule of what is late."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import Config, parse_config
from tests.support import make_config

WARNED = "lets one early event make events of now late, which it can't up to"
HOUR = {"kind": "tumbling", "size": "1 hour", "retention": "1 day"}
SOURCE = {"kind": "files", "path": "events", "format": "json"}


def windows(root: Path, skew: dict[str, Any], **window: Any) -> Config:
    raw = {
        "pipeline": {"name": "test", "warehouse": "warehouse"},
        "source": SOURCE,
        "event": {"key": "key", "time": "time", **skew},
        "window": {**HOUR, **window},
    }
    return parse_config(raw, root)


def join(root: Path, skew: str, **join: Any) -> Config:
    side = {"source": SOURCE, "event": {"time": "time", "max_future_skew": skew}}
    sides = {"left": {"name": "l", "size": "1 hour", **side}, "right": {"name": "r", "size": "2 hours", **side}}
    given = {"on": ["id"], "retention": "1 day", **sides, **join}
    return parse_config({"pipeline": {"name": "test", "warehouse": "warehouse"}, "join": given}, root)


@pytest.mark.parametrize(("skew", "warned"), [("40 minutes", 0), ("41 minutes", 1)])
def test_sessions_stay_open_for_gap_and_grace(tmp_path: Path, skew: str, warned: int) -> None:
    session = {"gap": "30 minutes", "grace": "10 minutes", "retention": "1 day"}
    warnings = make_config(tmp_path, session=session, event={"max_future_skew": skew}).warnings()
    line = f"event.max_future_skew: 41 minutes {WARNED} 40 minutes; write that or less, or raise session.grace"
    assert warnings == [line] * warned


@pytest.mark.parametrize(("skew", "warned"), [("10 minutes", 0), ("11 minutes", 1)])
def test_windows_end_right_after_an_event_and_stay_open_for_grace(tmp_path: Path, skew: str, warned: int) -> None:
    warnings = windows(tmp_path, {"max_future_skew": skew}, grace="10 minutes").warnings()
    assert [line.partition(":")[0] for line in warnings] == ["event.max_future_skew"] * warned


def test_a_default_that_nobody_wrote_is_told_as_such(tmp_path: Path) -> None:
    (line,) = windows(tmp_path, {}, grace="10 minutes").warnings()
    assert line.startswith(f"event.max_future_skew: the default, 1 hour, {WARNED} 10 minutes; write that or less")
    assert windows(tmp_path, {}).warnings() == []


@pytest.mark.parametrize(("skew", "warned"), [("70 minutes", 0), ("71 minutes", 2)])
def test_a_joins_messages_wait_for_their_last_partner_and_grace(tmp_path: Path, skew: str, warned: int) -> None:
    warnings = join(tmp_path, skew, grace="10 minutes").warnings()
    sides = ["join.left.event.max_future_skew", "join.right.event.max_future_skew"]
    assert [line.partition(":")[0] for line in warnings] == sides[:warned]


def test_by_count_nothing_is_late(tmp_path: Path) -> None:
    sides = {
        name: {"name": name, "size": 10, "source": SOURCE, "event": {"time": "time", "max_future_skew": "9 days"}}
        for name in ("left", "right")
    }
    raw = {"on": ["id"], "by": "count", "retention_count": 100, **sides}
    config = parse_config({"pipeline": {"name": "test", "warehouse": "warehouse"}, "join": raw}, tmp_path)
    assert config.warnings() == []
