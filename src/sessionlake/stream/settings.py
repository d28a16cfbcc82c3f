"""Whether a pipeline's tables were made with the settings of its config. Known without Spark."""

import json
from collections.abc import Iterator
from typing import Any

from sessionlake.config.durations import spoken_duration
from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.batch_commit import BatchCommit


def check_settings(config: Config, last: BatchCommit | None, bound: dict[str, Any]) -> None:
    """Refuse a config whose settings are not those the tables were made with; `bound` are `Kind.bound_settings`."""
    if last is None:
        return
    for told in changed_settings(config, last, bound):
        raise PipelineStateError(told)


def refusal(config: Config, last: BatchCommit) -> str | None:
    """Return why a run of the config would be refused after a batch; None if its settings are those of the tables."""
    return next(changed_settings(config, last, {}), None)


def changed_settings(config: Config, last: BatchCommit, bound: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each setting that is not the one which the tables were made with; `bound` are `Kind.bound_settings`."""
    if last.pipeline != config.pipeline.name:
        yield (
            f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {last.pipeline!r}, not {config.pipeline.name!r}; "
            "use one warehouse a pipeline"
        )
        return
    before, now = last.settings.rebuild, json.loads(json.dumps(all_bound(config, bound)))
    for name in now:
        for key, old, new in _differences(name, before.get(name), now[name]):
            if new is None:
                told = f"{key}: is gone, and was {_told(config, key, old)}"
            else:
                told = f"{key}: changed from {_told(config, key, old)} to {_told(config, key, new)}"
            yield (
                f"{told} on existing {config.operator}s; "
                "restore the old value, or build the tables anew: `sessionlake rebuild CONFIG --warehouse NEW`, then switch readers"
            )


def _differences(name: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between two values of a setting, key by key where they are tables."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield name, old, new
        return
    for key in dict.fromkeys((*new, *old)):
        yield from _differences(f"{name}.{key}", old.get(key), new.get(key))


def _told(config: Config, key: str, value: Any) -> str:
    """Return a setting's value as a user writes it."""
    if value is None:
        return "none"
    of_operator = config.section.bound_in_time and key.startswith(f"{config.operator}.")
    if of_operator and isinstance(value, int) and not isinstance(value, bool):
        return repr(spoken_duration(value))
    return repr(value)


def all_bound(config: Config, bound: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the tables are bound to, by the config and by its kind."""
    return {**config.rebuild_settings(), **bound}
