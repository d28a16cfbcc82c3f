"""A pipeline of any kind as the engine's coordinator sees it."""

from sessionlake.config.load import Config
from sessionlake.engine.pipeline import Pipeline
from sessionlake.stream.events import type_names
from sessionlake.stream.kind import Kind
from sessionlake.stream.planned import fingerprint
from sessionlake.stream.settings import all_bound
from sessionlake.stream.tables import outputs_of
from sessionlake.warehouse.batch_commit import Settings
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
        settings=Settings(all_bound(config, kind.bound_settings()), config.live_settings(), type_names(kind.inputs)),
        next_state=kind.next_state,
        stored_state=lambda operator, state: kind.stored(tables, operator, state),
        asked_for=lambda operator, state, needs: kind.lookups(tables, operator, state, needs),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        store_layout=kind.store_layout,
    )
