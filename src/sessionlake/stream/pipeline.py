"""A pipeline of any kind as the engine's coordinator sees it."""

from collections.abc import Mapping
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
from sessionlake.stream.unique import Unique, inner, layout, once
from sessionlake.stream.unique.tables import with_ids
from sessionlake.warehouse.batch_commit import Settings
from sessionlake.warehouse.tables import Tables


def make_pipeline(
    tables: Tables, config: Config, kind: Kind, checkpoint_id: str, *, allow_expiry: bool = False
) -> Pipeline:
    """Return the coordinator's Pipeline for a kind; with `allow_expiry` the limits on removals by [ttl] are ignored.

    `allow_expiry` is one of the commit's settings, so the rerun of an interrupted batch uses it again.
    """

    def operator_of(live: Mapping[str, Any] | None = None) -> Operator[Any]:
        return once(kind.operator(live), kind.inputs)

    live = {**config.live_settings(), **({ALLOW_EXPIRY: True} if allow_expiry else {})}
    return Pipeline(
        name=config.pipeline.name,
        checkpoint_id=checkpoint_id,
        operator=operator_of(live) if allow_expiry else operator_of(),
        operator_with=lambda settings: operator_of(settings.live),
        shards=config.pipeline.shards,
        store_dir=config.store_dir,
        outputs=outputs_of(tables, kind),
        settings=Settings(
            all_bound(config, kind.bound_settings()), live, type_names(kind.inputs), computed_names(kind.inputs)
        ),
        stored_state=partial(_stored, tables, kind),
        asked_for=partial(_answers, tables, kind),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        store_layout=partial(store_layout, kind),
        checked=lambda operator, state, stats: kind.checked(inner(operator), state, stats),
    )


def store_layout(kind: Kind, operator: Operator[Any]) -> str:
    """Return the settings that a store's content depends on, besides its keys."""
    return layout(operator, kind.store_layout(inner(operator)))


def _stored(tables: Tables, kind: Kind, operator: Operator[Any], state: State) -> DataFrame:
    """Return the rows that restore the shards."""
    stored = kind.stored(tables, inner(operator), state)
    return with_ids(tables, kind, operator, state, stored) if isinstance(operator, Unique) else stored


def _answers(tables: Tables, kind: Kind, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
    """Return the rows that shards asked for."""
    if kind.lookups is None:
        raise NotImplementedError(f"{kind.changelog.name}: shards ask for rows, and the operator has no lookups")
    return kind.lookups(tables, inner(operator), state, asked)
