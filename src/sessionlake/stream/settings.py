"""Whether a pipeline's tables were made with the settings of its config. Known without Spark."""

import json
from collections.abc import Mapping
from typing import Any

from sessionlake.config.durations import format_duration
from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.batch_commit import BatchCommit

_LENGTHS = ("gap", "max_gap", "max_length", "max_length_offset", "size", "advance", "offset")
"""The settings that are lengths of time, unless they count messages; the tables have them in microseconds."""


def check_settings(config: Config, last: BatchCommit | None, bound: dict[str, Any]) -> None:
    """Refuse a config whose settings are not those the tables were made with; `bound` are `Kind.bound_settings`."""
    if last is None:
        return
    if last.pipeline != config.pipeline.name:
        raise PipelineStateError(
            f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {last.pipeline!r}, not {config.pipeline.name!r}; "
            "use one warehouse a pipeline"
        )
    before, now = last.settings.rebuild, json.loads(json.dumps(all_bound(config, bound)))
    for name in now:
        if before.get(name) != now[name]:
            old, new = (_told(config, name, settings) for settings in (before, now))
            raise PipelineStateError(
                f"{name}: changed from {old} to {new} on existing {config.operator}s; "
                "restore the old value, or build the tables anew: `sessionlake rebuild CONFIG --warehouse NEW`, then switch readers"
            )


def refusal(config: Config, last: BatchCommit) -> str | None:
    """Return why a run of the config would be refused after a batch; None if its settings are those of the tables."""
    try:
        check_settings(config, last, {})
    except PipelineStateError as error:
        return str(error)
    return None


def all_bound(config: Config, bound: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the tables are bound to, by the config and by its kind."""
    return {**config.rebuild_settings(), **bound}


def _told(config: Config, name: str, settings: Mapping[str, Any]) -> str:
    """Return a setting as a config may have it: lengths of time as durations."""
    value = settings.get(name)
    section, _, key = name.rpartition(".")
    by_time = settings.get(f"{section}.by") != "count"
    if isinstance(value, int) and section == config.operator and by_time and key in _LENGTHS:
        return repr(format_duration(value))
    return "nothing" if value is None else repr(value)
