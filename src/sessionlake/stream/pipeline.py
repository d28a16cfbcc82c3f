"""A pipeline of any kind as the engine's coordinator sees it."""

from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.pipeline import Pipeline
from sessionlake.stream.changes import all_bound
from sessionlake.stream.events import computed_names, type_names
from sessionlake.stream.kind import ALLOW_EXPIRY, Kind, State
from sessionlake.stream.planned_offsets import fingerprint
from sessionlake.stream.tables import outputs_of
from sessionlake.warehouse.batch_commit import Settings
from sessionlake.warehouse.tables import Tables


def make_pipeline(
    tables: Tables, config: Config, kind: Kind, checkpoint_id: str, *, allow_expiry: bool = False
) -> Pipeline:
    """Return the coordinator's Pipeline for a kind; with `allow_expiry` the limits on removals by [ttl] are ignored.

    `allow_expiry` is one of the commit's settings, so the rerun of an interrupted batch uses it again.
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
        settings=Settings(
            all_bound(config, kind.bound_settings()), live, type_names(kind.inputs), computed_names(kind.inputs)
        ),
        stored_state=lambda operator, state: kind.stored(tables, operator, state),
        asked_for=partial(_answers, tables, kind),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        store_layout=kind.store_layout,
        checked=kind.checked,
    )


def _answers(tables: Tables, kind: Kind, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
    """Return the rows that shards asked for."""
    if kind.lookups is None:
        raise NotImplementedError(f"{kind.changelog.name}: shards ask for rows, and the operator has no lookups")
    return kind.lookups(tables, operator, state, asked)
