"""Windows and joins as a config's content, made of the arguments of a call: the config checks them, and errors name the arguments."""

import re
from collections.abc import Mapping
from typing import Any

from sessionlake.config.load import Config
from sessionlake.config.problems import problems_of
from sessionlake.errors import ConfigError
from sessionlake.local.source import local_config
from sessionlake.operators.joins.spec import SLIDING, TIME_AXIS, UNBOUNDED

_SOURCE = {"kind": "files", "path": "messages", "format": "json"}
"""A source that nothing reads."""
_EVENT = {"time": "time_us", "time_unit": "us"}
_ANY_BYTES = 1 << 62
_WINDOW_NAMES = {"window.retention_count": "keep", "window.retention": "until", "window.": ""}
_JOIN_NAMES = {
    **{f"join.{side}.event.max_future_skew": "max_future_skew" for side in ("left", "right")},
    "join.": "",
    ".event.": ".",
}
Side = Mapping[str, Any]
"""name, size, columns and time of a side of a join."""


ANY_COUNT = {"by": "count", "kind": "sliding", "size": 1, "retention": "1 day", "retention_count": 1}
"""The section [window] of some windows by count: definitions check these windows, and a config their section [emit]."""


def window_config(window: Mapping[str, Any], emit: Mapping[str, Any]) -> Config:
    """Return the config of windows by time or by count, with the sections [window] and [emit]; ConfigError names the wrong argument."""
    event = {"key": "key", **_EVENT}
    return _config({"source": _SOURCE, "event": event, "window": _without_none(window), "emit": emit}, _WINDOW_NAMES)


def join_config(sides: Mapping[str, Side], emit: Mapping[str, Any], max_future_skew: str | None, **join: Any) -> Config:
    """Return the config of a join; ConfigError names the wrong argument. `join` has the keys of [join]; None leaves a key out."""
    parts = {name: _side(name, side, max_future_skew, join) for name, side in sides.items()}
    config = _config({"join": _without_none({**join, **parts}), "emit": emit}, _JOIN_NAMES)
    untimed = [name for name, side in sides.items() if _time(side) is None]
    return _without_times(config, untimed) if untimed else config


def _config(content: Mapping[str, Any], names: Mapping[str, str]) -> Config:
    """Return a config; the first problem of a wrong one is raised with the arguments' names, which `names` has by the config's keys."""
    try:
        return local_config(content)
    except ConfigError as error:
        raise ConfigError(_renamed(str(problems_of(error)[0]), names)) from error


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with arguments in place of a config's keys. Quoted words are the user's, and stay.

    >>> _renamed("join.on: '= join.id' names no fields of the join.", {"join.": ""})
    "on: '= join.id' names no fields of the join."
    """
    # A key that ends with a dot is the beginning of a longer one, and no end of a sentence.
    keys = "|".join(re.escape(key) + (r"(?=\w)" if key.endswith(".") else r"\b") for key in names)
    return re.sub(rf"'[^']*'|{keys}", lambda found: names.get(found[0], found[0]), text)


def _side(name: str, given: Side, max_future_skew: str | None, join: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a side; ConfigError for a key that a side does not have."""
    unknown = given.keys() - {"name", "size", "columns", "time"}
    if unknown:
        raise ConfigError(f"{name}: {min(unknown)!r} is unknown; write name, size, columns and time")
    # Only a join by count may take the clock's time. No config says that; `_without_times` does.
    time = _time(given) or (None if join["by"] == TIME_AXIS else "time_us")
    event = {**_EVENT, "time": time, "max_future_skew": max_future_skew, "max_key_bytes": _ANY_BYTES}
    size = UNBOUNDED if join["kind"] == SLIDING and given.get("size") is None else given.get("size")
    own = {"name": given.get("name"), "size": size, "columns": list(given.get("columns", ()))}
    return _without_none({**own, "source": _SOURCE, "event": _without_none(event)})


def _time(side: Side) -> str | None:
    time: str | None = side.get("time", "time_us")
    return time


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _without_times(config: Config, names: list[str]) -> Config:
    """Return a join by count whose sides of these names take the clock's time."""
    changed = {}
    for name in names:
        side: Any = config.section.sides[name]
        event = side.event.model_copy(update={"time": None, "time_unit": None, "time_format": None})
        changed[name] = side.model_copy(update={"event": event})
    return config.model_copy(update={"section": config.section.model_copy(update=changed)})
