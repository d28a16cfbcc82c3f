"""From a config to an event input: the aggregates, the read columns, and their types."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from sessionlake.aggregates import Aggregate, build_aggregates
from sessionlake.aggregates.spec import build_custom, hidden_columns, parse_aggregates
from sessionlake.column_names import is_element, parts_of
from sessionlake.columnar.column_types import stored_text, stored_type
from sessionlake.config.load import Config
from sessionlake.config.names import column_of
from sessionlake.config.problems import InvalidConfigError
from sessionlake.errors import ConfigError, MissingColumnsError, PipelineStateError
from sessionlake.sources.columns import EventColumns, time_form
from sessionlake.sources.decoding.nested import leaves
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.sources.lookups.lookup import NO_LOOKUPS
from sessionlake.sources.lookups.source import WithLookups
from sessionlake.sources.record_columns import HEADERS, meta_of
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.named_columns import missing_columns, users_of
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.shape import Hidden, Shaping
from sessionlake.stream.whole import ALL


def aggregated_events(
    config: Config,
    source: TypedSource,
    pinned: Pinned | None,
    *,
    ordered: bool = False,
    more: Sequence[str] = (),
) -> tuple[tuple[Aggregate, ...], EventSpec]:
    """Return the config's aggregates and the event input with the columns they read; a user's class that names none reads all.

    `ordered` is `event_spec`'s; `more` are further read columns.
    """
    texts = config.aggregates if pinned is None else pinned.ordered(config.aggregates)
    known = () if pinned is None else pinned.types
    # The source is asked for what is new alone: its files may be gone.
    is_new = pinned is None or not texts.items() <= pinned.texts.items()
    specs = parse_aggregates(texts, lambda: {*known, *config.event.columns, *(source.columns() if is_new else ())})
    for spec in specs:
        if spec.of_positions and not config.source.entry.has_offsets:
            raise ConfigError(
                f"aggregates.{spec.name}: {spec.function}() is of topics, and source.kind is {config.source.kind!r}; "
                "write min(column) or max(column) of a column that numbers the events"
            )
    classes = [build_custom(s.name, s.path, config.pipeline.code) for s in specs if s.path is not None]
    names = [column for s in specs for column in s.inputs] + [column for c in classes for column in c.inputs]
    every = [c.name for c in classes if not c.inputs]
    if every:
        # A class of before goes on reading the columns of before.
        new = pinned is None or any(name not in pinned.texts for name in every)
        names += [name for name in (*(source.columns() if new else known), *config.event.columns) if name not in names]
    hidden = hidden_columns(specs)
    events = event_spec(config, source, [*names, *more], pinned, ordered=ordered, hidden=hidden)
    types = {**events.columns.types, **events.types}
    with_id = config.event.id is not None
    built = build_aggregates(
        texts,
        types,
        with_id=with_id,
        directory=config.pipeline.code,
        subtracts=config.subtracts,
        id_order=events.id_order,
    )
    by_time = next((one.name for one in built if one.by_time), None) if config.subtracts else None
    if by_time is not None and config.event.time is None:
        raise ConfigError(
            f"aggregates.{by_time}: {texts[by_time]!r} goes by event time, and without one a row would be taken back at another time "
            f"than it was added; write {config.event_at}.time, a column of the row"
        )
    if pinned is None:
        return built, events
    shaping = Shaping.of(config.event_at, config.event, (), names, hidden)
    return tuple(pinned.marked(a, shaping.sources(a.inputs or names)) for a in built), events


def event_spec(
    config: Config,
    source: TypedSource,
    inputs: Sequence[str],
    pinned: Pinned | None,
    keys: Sequence[str] = (),
    *,
    ordered: bool = False,
    hidden: Hidden = MappingProxyType({}),
    compared: Sequence[str] = (),
) -> EventSpec:
    """Return the settings that workers need for an event input from which the columns `inputs` are read.

    Commits pin the types; those of columns that no batch has read are read from the source. `keys` are the columns of the key, if they
    are not those of [event]. `compared` are columns of `inputs` that rows are joined by. With `ordered` the rows' places are read too, which numbered rows need. `hidden` are columns of
    `inputs` that aggregates compute.
    """
    event = config.event
    keys, ids = tuple(keys) or event.key_columns, event.id_columns
    shaping = Shaping.of(config.event_at, event, (*keys, event.time, *ids), inputs, hidden)
    looked = source if isinstance(source, WithLookups) else None
    looked_up_by = () if looked is None else looked.compared
    # An element of a list or map is computed.
    plain = (name for name in (*keys, *ids, *compared) if name not in event.columns and not is_element(name))
    identity = {*looked_up_by, *plain}
    types = _known_types(config, source, shaping, pinned, looked_up_by, identity)
    _refuse_nested(config, {name: types[name] for name in (*identity, event.time) if name in types})
    shape = shaping.shape(types)
    key, id_ = (next(iter(names), None) for names in (keys, ids))
    columns = EventColumns(
        key,
        event.time,
        time_form(event),
        id_,
        shaping.inputs,
        {name: pa.int64() if type_ == pa.null() else type_ for name, type_ in types.items()},
        ordered=ordered,
        further_keys=keys[1:],
        further_ids=ids[1:],
        computed=shape.types,
        asked=shaping.asked,
        also=shaping.also,
        compared=tuple(looked_up_by),
        looked_up={}
        if looked is None
        else {name: lookup for name, lookup in looked.looked_up.items() if name in types},
        canonical=tuple(sorted(identity - {*config.source.types})),
        whole=config.pipeline.archive == ALL,
    )
    if columns.whole and HEADERS in {*columns.needed} & meta_of(config.source).keys():
        raise ConfigError(f"pipeline.archive: 'all' keeps records without headers, and {HEADERS!r} is read; write true")
    return EventSpec(
        decoder=source.decoder(columns.read),
        lookups=NO_LOOKUPS if looked is None else looked.lookups(columns),
        layouts=() if pinned is None else pinned.layouts,
        beyond_retention=config.beyond_retention,
        max_future_skew_us=config.max_future_skew_us,
        archive=config.pipeline.archive,
        max_key_bytes=event.max_key_bytes,
        shape=replace(shape, looked_up=columns.looked_up),
        unique_us=event.unique_us,
        shows_duplicates=event.shows_duplicates,
        takes_back=config.takes_back and config.source.takes_back,
        every_time=config.source.has_every_time,
    )


def _known_types(
    config: Config,
    source: TypedSource,
    shaping: Shaping,
    pinned: Pinned | None,
    compared: Sequence[str],
    identity: AbstractSet[str],
) -> dict[str, pa.DataType]:
    """Return the source's column types: as pinned, and from the source for columns that only `where` reads."""
    needed = tuple(dict.fromkeys((*shaping.plain, *shaping.inputs, *shaping.also, *compared)))
    if pinned is None:
        types = _types(config, source, needed, identity)
    else:
        types = {name: stored_type(text) for name, text in pinned.types.items()}
    # Columns that only `where` reads, and columns that the pipeline reads for the first time.
    fresh = [name for name in dict.fromkeys((*needed, *shaping.asked)) if name not in types]
    return {**types, **(_types(config, source, fresh, identity) if fresh else {})}


def _refuse_nested(config: Config, types: Mapping[str | None, pa.DataType]) -> None:
    """Raise ConfigError for a list, a map or a column with fields among the columns that identify events, or are compared."""
    for name, type_ in types.items():
        if name is None or not pa.types.is_nested(type_):
            continue
        at = next((key for key, _ in users_of(config, name)), config.event_at)
        if not pa.types.is_struct(type_):
            kind, element = ("map", "['name']") if pa.types.is_map(type_) else ("list", "[0]")
            raise ConfigError(f"{at}: {name!r} is a {kind}; write {name + element!r}")
        inner = [*leaves(type_), "id"]
        leaf = "id" if "id" in inner[:-1] else inner[0]
        raise ConfigError(f"{at}: {name!r} has fields; write '{name}.{leaf}'")


def every_column(config: Config, source: TypedSource, pinned: Pinned | None, own: Sequence[str | None]) -> list[str]:
    """Return the columns of events, except its `own` and a record's place: as the first batch had them.

    PipelineStateError if `where` reads a column that the first batch had not: it would be one of them from then on.
    """
    event = config.event
    if pinned is not None:
        new = [name for name in Shaping.of(config.event_at, event, (), ()).asked if name not in pinned.types]
        if new:
            raise PipelineStateError(
                f"{config.event_at}.where: column {new[0]!r} is new to this pipeline, whose rows have all columns of the source; "
                f"name those in {config.operator}.columns, or leave this one out"
            )
    names = dict.fromkeys((*(source.columns() if pinned is None else pinned.types), *event.columns))
    return [name for name in names if name not in (*own, *meta_of(config.source)) and len(parts_of(name)) == 1]


def _types(
    config: Config, source: TypedSource, needed: Sequence[str], identity: AbstractSet[str]
) -> dict[str, pa.DataType]:
    """Return the types of columns in the source; an error for a missing column names the config's key that asks for it."""
    try:
        return source.types(needed, identity)
    except MissingColumnsError as error:
        raise InvalidConfigError(list(missing_columns(config, error))) from error


def type_names(inputs: Mapping[str, EventSpec]) -> dict[str, str]:
    """Return the types of the inputs' columns as text, for a commit's metadata."""
    return {
        column_of(name, column): stored_text(type_)
        for name, spec in inputs.items()
        for column, type_ in spec.columns.types.items()
    }


def computed_names(inputs: Mapping[str, EventSpec]) -> dict[str, str]:
    """Return the types of the inputs' computed columns as text, for a commit's metadata."""
    return {
        column_of(name, column): stored_text(type_)
        for name, spec in inputs.items()
        for column, type_ in spec.shape.types.items()
    }
