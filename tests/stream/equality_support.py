"""Configs and commits of warehouses from before and after rule 465."""

from pathlib import Path
from typing import Any

from sessionlake.config.load import Config, parse_config
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

FILES = {"kind": "files", "path": "events", "format": "json"}
TIME = {"time": "at", "time_unit": "us"}
SESSION = {"session": {"gap": "10 minutes"}, "aggregates": {"n": "count()"}}


def config_of(tmp_path: Path, content: dict[str, Any]) -> Config:
    return parse_config({"pipeline": {"name": "p", "warehouse": "w"}, **content}, tmp_path)


def by_key(tmp_path: Path, key: Any = "k", **event: Any) -> Config:
    return config_of(tmp_path, {"source": FILES, "event": {"key": key, **TIME, **event}, **SESSION})


def joined(tmp_path: Path, operator: str) -> Config:
    side = {"columns": ["v"], "source": FILES, "event": TIME, **({"size": "1 hour"} if operator == "join" else {})}
    more = {"retention": "3 hours"} if operator == "join" else {}
    sides = {"left": {"name": "a", **side}, "right": {"name": "b", **side}}
    return config_of(tmp_path, {operator: {"on": ["x = y"], **more, **sides}})


def last(
    config: Config, types: dict[str, str], computed: dict[str, str] | None = None, *, by_value: bool = False
) -> BatchCommit:
    settings = Settings(config.rebuild_settings(), config.live_settings(), types, computed or {}, by_value=by_value)
    return BatchCommit("p", "c", 7, "x", {}, {}, (None,) * 4, "1", settings, None, 0, 0)
