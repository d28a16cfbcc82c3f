"""From a config to an event input: what is aggregated, which columns are read, and as which types."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from sessionlake.aggregates import Aggregate, AggregateSpec, build_aggregates
from sessionlake.aggregates.spec import build_custom
from sessionlake.config.load import Config
from sessionlake.config.problems import InvalidConfigError
from sessionlake.errors import ConfigError, MissingColumnsError, PipelineStateError
from sessionlake.sources.base import Source
from sessionlake.sources.columns import EventColumns, type_named
from sessionlake.stream.ingest import EventSpec, column_of
from sessionlake.stream.named_columns import missing_columns


def aggregated_events(
    config: Config,
    source: Source,
    pinned: Mapping[str, str] | None,
    *,
    ordered: bool = False,
    more: Sequence[str] = (),
) -> tuple[tuple[Aggregate, ...], EventSpec]:
    """Return the config's aggregates and the event input with the columns they read; a user's class that names none reads all.

    `ordered` is `event_spec`'s; `more` columns are read beside those.
    """
    specs = [AggregateSpec.parse(name, text) for name, text in config.aggregates.items()]
    for spec in specs:
        if spec.of_positions and config.source.kind != "kafka":
            raise ConfigError(
                f"aggregates.{spec.name}: {spec.function}() is of topics, and source.kind is {config.source.kind!r}; "
                "write min(column) or max(column) of a column that numbers the events"
            )
    classes = [build_custom(s.name, s.path, config.pipeline.code) for s in specs if s.path is not None]
    names = [column for s in specs for column in s.inputs] + [column for c in classes for column in c.inputs]
    if any(not c.inputs for c in classes):
        names += [name for name in source.columns() if name not in names]
    events = event_spec(config, source, [*names, *more], pinned, ordered=ordered)
    types = dict(events.decoder.columns.types)
    with_id = config.event.id is not None
    return build_aggregates(config.aggregates, types, with_id=with_id, directory=config.pipeline.code), events


def event_spec(
    config: Config,
    source: Source,
    inputs: Sequence[str],
    pinned: Mapping[str, str] | None,
    keys: Sequence[str] = (),
    *,
    ordered: bool = False,
) -> EventSpec:
    """Return what workers need of an event input whose `inputs` are computed from.

    Types are pinned by the first commit, or else read off the source. `keys` are the columns that make the key, where that
    is not the config's one; where rows are numbered, their places are needed beside the columns (`ordered`).
    """
    event = config.event
    inputs = tuple(dict.fromkeys(inputs))
    key, *further = keys or (event.key,)
    needed = list(dict.fromkeys([name for name in (key, *further, event.time, event.id, *inputs) if name]))
    types = {name: type_named(text) for name, text in pinned.items()} if pinned else _types(config, source, needed)
    missing = [name for name in needed if name not in types]
    if missing:
        raise PipelineStateError(
            f"aggregates: column {missing[0]!r} is new to this pipeline; to add it, start a new warehouse"
        )
    columns = EventColumns(
        key, event.time, event.time_unit, event.id, inputs, types, ordered=ordered, further_keys=tuple(further)
    )
    return EventSpec(
        decoder=source.decoder(columns),
        beyond_retention=config.beyond_retention,
        max_future_skew_us=config.max_future_skew_us,
        archive=config.pipeline.archive,
        max_key_bytes=event.max_key_bytes,
    )


def _types(config: Config, source: Source, needed: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of columns as the source has them; what names a column that it lacks is told by its key."""
    try:
        return source.types(needed)
    except MissingColumnsError as error:
        raise InvalidConfigError(list(missing_columns(config, error))) from error


def computed_types(spec: EventSpec) -> dict[str, pa.DataType]:
    """Return the columns of an input that are computed from."""
    columns = spec.decoder.columns
    return {name: columns.types[name] for name in columns.inputs}


def type_names(inputs: Mapping[str, EventSpec]) -> dict[str, str]:
    """Return the types of the inputs' columns as text, for a commit's metadata."""
    return {
        column_of(name, column): str(type_)
        for name, spec in inputs.items()
        for column, type_ in spec.decoder.columns.types.items()
    }


def pinned_of(name: str, pinned: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return what `type_names` has of an input; None where nothing is pinned yet."""
    if pinned is None:
        return None
    before = column_of(name, "")
    return {column.removeprefix(before): text for column, text in pinned.items() if column.startswith(before)}
