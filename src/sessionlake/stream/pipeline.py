"""A pipeline of any kind as the engine's coordinator sees it, and whether its tables were made by such a one."""

import json
from collections.abc import Iterator
from typing import Any

from sessionlake.config.durations import spoken_duration
from sessionlake.config.load import Config
from sessionlake.engine.pipeline import Pipeline
from sessionlake.errors import PipelineStateError
from sessionlake.stream.events import type_names
from sessionlake.stream.kind import Kind
from sessionlake.stream.planned import fingerprint
from sessionlake.stream.tables import outputs_of
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.tables import Tables


def make_pipeline(tables: Tables, config: Config, kind: Kind, checkpoint_id: str) -> Pipeline:
    """Return what the coordinator must know."""
    return Pipeline(
        name=config.pipeline.name,
        checkpoint_id=checkpoint_id,
        operator=kind.operator(),
        operator_with=lambda settings: kind.operator(settings.live),
        shards=config.pipeline.shards,
        store_dir=config.store_dir,
        outputs=outputs_of(tables, kind),
        settings=Settings(_bound(config, kind.bound_settings()), config.live_settings(), type_names(kind.inputs)),
        next_state=kind.next_state,
        stored_state=lambda operator, state: kind.stored(tables, operator, state),
        asked_for=lambda operator, state, needs: kind.lookups(tables, operator, state, needs),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        store_layout=kind.store_layout,
    )


def check_settings(config: Config, last: BatchCommit | None, bound: dict[str, Any]) -> None:
    """Refuse a config whose settings are not those the tables were made with; `bound` are `Kind.bound_settings`."""
    if last is None:
        return
    for told in changed_settings(config, last, bound):
        raise PipelineStateError(told)


def changed_settings(config: Config, last: BatchCommit, bound: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each setting that is not the one which the tables were made with; `bound` are `Kind.bound_settings`."""
    if last.pipeline != config.pipeline.name:
        yield (
            f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {last.pipeline!r}, not {config.pipeline.name!r}; "
            "use one warehouse a pipeline"
        )
        return
    before, now = last.settings.rebuild, json.loads(json.dumps(_bound(config, bound)))
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


def _bound(config: Config, bound: dict[str, Any]) -> dict[str, Any]:
    return {**config.rebuild_settings(), **bound}
