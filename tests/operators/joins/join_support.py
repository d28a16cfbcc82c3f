"""Pipelines that join two streams, for tests."""

from pathlib import Path
from typing import Any

from sessionlake.config.load import Config, parse_config


def join_raw(**changes: Any) -> dict[str, Any]:
    """Return a config of orders and shipments within 10 us of each other; `changes` are of [join], None removes a key.

    `left`, `right`, and what is no key of [join] are merged into their sections.
    """
    side: dict[str, Any] = {"event": {"time": "time_us", "time_unit": "us"}}
    files = {"kind": "files", "format": "json", "max_files_per_batch": 1}
    join: dict[str, Any] = {
        "on": ["id"],
        "grace": "5 us",
        "retention_time": "40 us",
        "left": {**side, "name": "orders", "size": "10 us", "columns": ["v"], "source": {**files, "path": "left"}},
        "right": {**side, "name": "shipments", "size": "10 us", "columns": ["w"], "source": {**files, "path": "right"}},
    }
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2},
        "join": join,
        "expire": {"max_share": 1.0},
    }
    for name, value in changes.items():
        if name in ("left", "right"):
            join[name] = _merged(join[name], value)
        elif name in ("pipeline", "emit", "event", "source", "aggregates", "session", "window", "expire", "sink"):
            raw[name] = {**raw.get(name, {}), **value}
        else:
            join[name] = value
    raw["join"] = {name: value for name, value in join.items() if value is not None}
    return raw


def join_config(root: Path, **changes: Any) -> Config:
    """Return it, with the directories of its sides made."""
    for name in ("left", "right"):
        (root / name).mkdir(exist_ok=True)
    return parse_config(join_raw(**changes), root)


def _merged(section: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**section, **changes}.items() if value is not None}
