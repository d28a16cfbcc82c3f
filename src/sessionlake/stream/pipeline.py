"""A pipeline of any kind as the engine's coordinator sees it, and whether its tables were made by such a one."""

import json
from typing import Any

from sessionlake.config.load import Config
from sessionlake.engine.pipeline import Pipeline
from sessionlake.errors import PipelineStateError
from sessionlake.stream.events import type_names
from sessionlake.stream.kind import ALLOW_EXPIRY, Kind
from sessionlake.stream.planned import fingerprint
from sessionlake.stream.tables import outputs_of
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.tables import Tables


def make_pipeline(
    tables: Tables, config: Config, kind: Kind, checkpoint_id: str, *, allow_expiry: bool = False
) -> Pipeline:
    """Return what the coordinator must know; with `allow_expiry` nothing holds back what [ttl] removes.

    That is one of the settings, so that a batch is run again under it which was interrupted.
    """
    live = {**config.live_settings(), **({ALLOW_EXPIRY: True} if allow_expiry else {})}
    return Pipeline(
        name=config.pipeline.name,
        checkpoint_id=checkpoint_id,
        operator=kind.operator(live) if allow_expiry else kind.operator(),
        operator_with=lambda settings: kind.operator(settings.live),
        shards=config.pipeline.shards,
        store_dir=config.store_dir,
        outputs=outputs_of(tables, kind),
        settings=Settings(_bound(config, kind.bound_settings()), live, type_names(kind.inputs)),
        next_state=kind.next_state,
        stored_state=lambda operator, state: kind.stored(tables, operator, state),
        asked_for=lambda operator, state, needs: kind.lookups(tables, operator, state, needs),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        store_layout=kind.store_layout,
        checked=kind.checked,
    )


def check_settings(config: Config, last: BatchCommit | None, bound: dict[str, Any]) -> None:
    """Refuse a config whose settings are not those the tables were made with; `bound` are `Kind.bound_settings`."""
    if last is None:
        return
    if last.pipeline != config.pipeline.name:
        raise PipelineStateError(
            f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {last.pipeline!r}, not {config.pipeline.name!r}; "
            "use one warehouse a pipeline"
        )
    before, now = last.settings.rebuild, json.loads(json.dumps(_bound(config, bound)))
    for name in now:
        if before.get(name) != now[name]:
            raise PipelineStateError(
                f"{name}: changed from {before.get(name)!r} to {now[name]!r} on existing {config.operator}s; "
                "restore the old value, or build the tables anew: `sessionlake rebuild CONFIG --warehouse NEW`, then switch readers"
            )


def _bound(config: Config, bound: dict[str, Any]) -> dict[str, Any]:
    return {**config.rebuild_settings(), **bound}
