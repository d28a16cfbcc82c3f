"""A pipeline of any kind as the engine's coordinator sees it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sessionlake.aggregates.beyond import notes_of
from sessionlake.aggregates.layouts import Layout, Layouts
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.pipeline import PinsOf, Pipeline
from sessionlake.stream import causes
from sessionlake.stream.changes import all_bound
from sessionlake.stream.computed import columns_then, next_shapes, with_columns
from sessionlake.stream.events import computed_names, type_names
from sessionlake.stream.interrupted import check_columns
from sessionlake.stream.kind import ALLOW_EXPIRY, Kind, State
from sessionlake.stream.pinned import AGGREGATES
from sessionlake.stream.planned_offsets import fingerprint
from sessionlake.stream.relaid import relaid
from sessionlake.stream.tables import keeps_replaced, outputs_of
from sessionlake.stream.unique import Unique, once
from sessionlake.stream.unique.events import unique_secret
from sessionlake.stream.unique.tables import unique_since, with_ids
from sessionlake.stream.wrapped import inner, store_layout
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def make_pipeline(
    tables: Tables,
    config: Config,
    kind: Kind,
    checkpoint_id: str,
    *,
    before: BatchCommit | None = None,
    layouts: Sequence[Layout] = (),
    remade: Callable[[Settings], tuple[Config, Kind]] | None = None,
    allow_expiry: bool = False,
    pins: PinsOf = lambda before, _: before or {},
) -> Pipeline:
    """Return the coordinator's Pipeline for a kind; with `allow_expiry` the limits on removals by [ttl] are ignored.

    `pins` are the Pipeline's.

    `allow_expiry` is one of the commit's settings, so the rerun of an interrupted batch uses it again. `before` is the last batch,
    or one that was interrupted after it. `layouts` are those of the states, the newest last. `remade` makes config and kind as an interrupted batch had them, if its aggregates are others.
    """
    live = {**config.live_settings(), **({ALLOW_EXPIRY: True} if allow_expiry else {})}
    bound = all_bound(config, kind.bound_settings())
    if kind.aggregates:
        bound[AGGREGATES] = {aggregate.name: config.aggregates[aggregate.name] for aggregate in kind.aggregates}
    settings = Settings(
        bound,
        live,
        type_names(kind.inputs),
        computed_names(kind.inputs),
        [layout.fields() for layout in layouts],
        unique_since(kind.inputs, before),
        unique_secret(before),
        next_shapes(config, before),
        by_value=True,
        paths=True,
        graced=before is None or before.settings.graced,
    )

    def under(other: Settings) -> Pipeline:
        if other.rebuild.get(AGGREGATES) != bound.get(AGGREGATES) and remade is not None:
            before, made = remade(other)
            check_columns(config, kind.inputs, made.inputs)
            read = [Layout.read(fields) for fields in other.layouts]
            return make_pipeline(tables, before, made, checkpoint_id, layouts=read, pins=pins).under(other)
        then = with_columns(config, other.live, columns_then(config, other))
        return replace(pipeline, operator=operator_of(kind, layouts, then, secret=other.unique_secret), settings=other)

    pipeline = Pipeline(
        name=config.pipeline.name,
        checkpoint_id=checkpoint_id,
        operator=operator_of(kind, layouts, live if allow_expiry else None, secret=settings.unique_secret),
        under=under,
        shards=config.pipeline.shards,
        store_dir=config.store_dir,
        store_engine=config.pipeline.store_engine,
        outputs=outputs_of(tables, kind),
        keeps_replaced=keeps_replaced(tables, config, kind),
        settings=settings,
        stored_state=partial(_stored, tables, kind),
        asked_for=partial(_answers, tables, kind),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        pins=pins,
        store_layout=lambda operator: store_layout(operator, kind.store_layout(inner(operator))),
        checked=lambda operator, state, stats: [
            *kind.checked(inner(operator), state, stats),
            *notes_of(stats),
            *causes.notes_of(stats),
        ],
    )
    return pipeline


def operator_of(
    kind: Kind, layouts: Sequence[Layout], live: Mapping[str, Any] | None = None, *, secret: str = ""
) -> Operator[Any]:
    """Return the workers' half of a kind with all that is around it; under other settings of classification if these are given."""
    return once(relaid(kind.operator(live), Layouts.of(layouts, kind.aggregates)), kind.inputs, secret)


def _stored(tables: Tables, kind: Kind, operator: Operator[Any], state: State) -> "DataFrame":
    """Return the rows that restore the shards."""
    stored = kind.stored(tables, inner(operator), state)
    return with_ids(tables, kind, operator, state, stored) if isinstance(operator, Unique) else stored


def _answers(tables: Tables, kind: Kind, operator: Operator[Any], state: State, asked: "DataFrame") -> "DataFrame":
    """Return the rows that shards asked for."""
    if kind.lookups is None:
        raise NotImplementedError(f"{kind.changelog.name}: shards ask for rows, and the operator has no lookups")
    return kind.lookups(tables, inner(operator), state, asked)
