"""A config of each operator, without a warehouse."""

from typing import Any

SOURCE = {"kind": "files", "path": "events", "format": "json"}
EVENT = {"key": "key", "time": "time_us", "time_unit": "us"}
SIDE = {"source": SOURCE, "event": {"time": "time_us", "time_unit": "us"}, "columns": ["v"]}
EVENTS = {"source": SOURCE, "event": EVENT, "aggregates": {"total": "sum(v)"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "session": {**EVENTS, "session": {"gap": "1 minute", "grace": "1 hour", "retention": "1 day"}},
    "window": {
        **EVENTS,
        "window": {"kind": "tumbling", "size": "1 minute", "grace": "1 hour", "retention": "1 day"},
        "emit": {"early": "batch", "late": "batch"},
    },
    "count": {
        **EVENTS,
        "window": {"kind": "tumbling", "by": "count", "size": 2, "retention": "1 day", "retention_count": 100},
        "emit": {"early": "batch"},
    },
    "table": {"source": SOURCE, "event": EVENT, "table": {"columns": ["v"], "retention": "1 day"}},
    "group": {**EVENTS, "group": {}},
    "join": {
        "join": {
            "on": ["key"],
            "left": {"name": "l", "size": "1 minute", **SIDE},
            "right": {"name": "r", "size": "1 minute", **SIDE},
            "retention": "1 day",
        }
    },
    "table_join": {
        "table_join": {
            "on": ["key"],
            "left": {"name": "l", "columns": ["v"], **SIDE},
            "right": {"name": "r", "columns": ["v"], **SIDE},
        }
    },
    "process": {
        "source": SOURCE,
        "event": EVENT,
        "process": {
            "class": "tests.local.running_sums:RunningSums",
            "columns": ["v"],
            "retention": "1 day",
            "output": {"total": "long"},
        },
    },
}
"""A config by operator; a new operator adds its own."""
SIDED = ("join", "table_join")
"""The operators of two inputs."""


def given(operator: str, rows: list[dict[str, Any]]) -> Any:
    """Return rows of each of the operator's inputs."""
    return {"left": rows, "right": rows} if operator in SIDED else rows
