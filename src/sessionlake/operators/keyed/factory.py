"""The specification of a keyed table, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pyarrow as pa

from sessionlake.aggregates.scalars import state_type
from sessionlake.column_names import titled, titles_of
from sessionlake.columnar.expressions import Expression
from sessionlake.columnar.spark_sql import Parsed
from sessionlake.config.load import Config
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.section import TableSection, check_columns
from sessionlake.operators.keyed.spec import EVENT_TIME, KEY, KeyedSpec
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.sources.record_columns import CHANGE_PLACES, FEED_COLUMNS, NO_VALUE, OFFSET, PARTITION
from sessionlake.stream.events import event_spec, every_column
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.shape import Shaping
from sessionlake.warehouse import schemas


def spec_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> KeyedSpec:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    section, source, condition = cast("TableSection", config.section), sources[EVENTS], None
    own = (*config.event.key_columns, config.event.time, *config.event.id_columns)
    paths = tuple(section.columns or every_column(config, source, pinned, own))
    columns = titles_of(paths)
    check_columns((*config.table_key_columns, *columns))
    parsed = section.condition
    read = () if parsed is None else _columns_of(parsed, config, source, pinned)
    events = event_spec(config, source, (*paths, *read, *_places(config.source)), pinned)
    types = events.types
    for name in paths:
        _check_type(name, types[name])
    if parsed is not None:
        condition = _typed(parsed, types)
        if config.takes_back:
            _refuse_of_changes(parsed, config)
    shaping = Shaping.of(config.event_at, config.event, (), paths)
    pairs = zip(columns, paths, strict=True)
    unsaid = {} if config.source.envelope is None else {name: shaping.sources([path]) for name, path in pairs}
    spec = KeyedSpec(
        events, columns, section.retention_us, section.by_offset, condition, unsaid=unsaid, paths=titled(paths)
    )
    if config.takes_back:
        spec = replace(spec, not_one=_not_one(config))
    ttl = None if section.ttl is None else section.ttl.build(spec.types_in_sql, config.pipeline.shards)
    return replace(spec, ttl=ttl)


def _not_one(config: Config) -> str:
    """Return the error for two rows of the followed table with one key."""
    at, named = config.source.AT, repr(config.source.place)
    upstream = config.upstream.get(at)
    them = "the columns that identify its rows, or remove one of the two there"
    if upstream is not None:
        them = f"key = {[*upstream.changelog.identity]}".replace("'", '"')
    key = config.event.key_columns
    return (
        f"{config.event_at}.key: two rows of {named} have the same {' and '.join(map(repr, key))}, and a [table] has one row of each key; "
        f"write {them}, and make the table again: `sessionlake rebuild CONFIG --warehouse NEW`"
    )


def _places(source: SourceSection) -> tuple[str, ...]:
    """Return the columns that order a source's rows, and say whether a record has a value."""
    if not source.has_offsets:
        return ()
    return (OFFSET, PARTITION, NO_VALUE) if source.entry.has_offsets else (OFFSET, PARTITION)


def _columns_of(parsed: Parsed, config: Config, source: TypedSource, pinned: Pinned | None) -> tuple[str, ...]:
    """Return the columns of events that an expression reads: key and event_time are not, unless there are such columns."""
    derived = {KEY, EVENT_TIME} & {*parsed.columns} - config.event.columns.keys()
    known = set(() if not derived else source.columns() if pinned is None else pinned.types)
    return tuple(name for name in parsed.columns if name not in derived or name in known)


def _typed(parsed: Parsed, types: Mapping[str, pa.DataType]) -> Expression:
    found: Expression = parsed.typed({KEY: pa.string(), EVENT_TIME: schemas.TIME, **types}, "boolean")
    if found.uses_clock:
        raise ConfigError(
            f"{parsed.setting}: {parsed.text!r} reads the clock, but the effect of an event must not depend on the time of its arrival; "
            "compare with a column"
        )
    return found


def _refuse_of_changes(parsed: Parsed, config: Config) -> None:
    """Raise ConfigError for a condition that may be true of a row that is taken back and was not when it was added."""
    names = [config.event.time if name == EVENT_TIME else name for name in parsed.columns]
    read = Shaping.of(config.event_at, config.event, (), ()).sources([name for name in names if name is not None])
    named = next((name for name in read if name in {**FEED_COLUMNS, **CHANGE_PLACES}), None)
    if named is not None:
        raise ConfigError(
            f"{parsed.setting}: {parsed.text!r} reads {named}, which is of a change, and a row is taken back by another change than the one that added it; "
            "ask for columns of the row (a row that is deleted there is deleted here without a condition)"
        )


def _check_type(name: str, type_: pa.DataType) -> None:
    try:
        state_type(type_, name)
    except ConfigError as error:
        raise ConfigError(
            f"table.columns: {name!r} is of type {type_}, which a row can't hold; cast it in the source, or name the columns without it"
        ) from error
