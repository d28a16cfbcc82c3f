"""A pipeline of any kind as the engine's coordinator sees it."""

from sessionlake.config.load import Config
from sessionlake.engine.pipeline import Pipeline
from sessionlake.stream.events import type_names
from sessionlake.stream.kind import ALLOW_EXPIRY, Kind
from sessionlake.stream.planned import fingerprint
from sessionlake.stream.settings import all_bound
from sessionlake.stream.tables import outputs_of
from sessionlake.warehouse.batch_commit import Settings
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
        settings=Settings(all_bound(config, kind.bound_settings()), live, type_names(kind.inputs)),
        next_state=kind.next_state,
        stored_state=lambda operator, state: kind.stored(tables, operator, state),
        asked_for=lambda operator, state, needs: kind.lookups(tables, operator, state, needs),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        store_layout=kind.store_layout,
        checked=kind.checked,
    )
