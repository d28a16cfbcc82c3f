"""Changed computed columns: new meanings, their readers, and the columns of past batches (docs/rules.md, rule 217)."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError
from sessionlake.stream.ingest import COLUMNS, EVENTS
from sessionlake.stream.named_columns import aggregate_reads, readers_of
from sessionlake.stream.shape import WHERE
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

Columns = Mapping[str, str]
"""The SQL of computed columns by name, from top to bottom."""


@dataclass(frozen=True)
class Meaning:
    """A computed column's meaning: its text, and the meanings of the computed columns that it reads."""

    digest: str
    """Equal for equal meanings."""
    of: frozenset[str]
    """The computed columns that it is made of, itself too."""


@dataclass(frozen=True)
class Different:
    """A computed column that came, went, has another text, or sees other columns than before."""

    name: str
    before: str | None
    after: str | None
    reader: str | None
    """The first key that gives stored results another meaning through it; None if there is none."""


def columns_at(config: Config) -> str:
    """Return the key of the computed columns of an input."""
    return f"{config.event_at}.columns"


def meanings(at: str, columns: Columns) -> dict[str, Meaning]:
    """Return the meaning of each computed column. A name that is computed further down is the source's.

    >>> one, two = (meanings("event.columns", of) for of in ({"a": "n", "b": "a * 2"}, {"b": "a * 2", "a": "n"}))
    >>> one["a"] == two["a"], one["b"] == two["b"], sorted(one["b"].of)
    (True, False, ['a', 'b'])
    """
    meanings_so_far: dict[str, Meaning] = {}
    for name, text in columns.items():
        read = {other: meanings_so_far[other] for other in _named(f"{at}.{name}", text) if other in meanings_so_far}
        told = json.dumps([text, {other: meaning.digest for other, meaning in sorted(read.items())}])
        of = frozenset({name}).union(*(meaning.of for meaning in read.values()))
        meanings_so_far[name] = Meaning(hashlib.sha256(told.encode()).hexdigest(), of)
    return meanings_so_far


def _named(setting: str, text: str) -> Collection[str]:
    """Return the columns that SQL names; all its words if this release refuses it."""
    from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

    try:
        return parse(setting, text).columns
    except ConfigError:
        return set(re.findall(r"\w+", text))


def different(config: Config, name: str, last: BatchCommit) -> Iterator[Different]:
    """Yield an input's computed columns that differ from the last commit's."""
    at, old, new = columns_at(config), columns_of(last.settings, columns_at(config)), config.event.columns
    made_of = _other_meanings(at, old, new)
    edited = [column for column in made_of if old.get(column) != new.get(column)]
    moved = [column for column in made_of if column not in edited and not made_of[column] & {*edited}]
    kept = _kept(config, last)
    for column in (*edited, *moved):
        through = (other for other, of in made_of.items() if column in of)
        reader = next((key for other in through for key in readers_of(config, name, other, kept)), None)
        yield Different(column, old.get(column), new.get(column), reader)


def _other_meanings(at: str, old: Columns, new: Columns) -> dict[str, frozenset[str]]:
    """Return the names with a changed meaning, each with its computed columns before and now."""
    if list(old.items()) == list(new.items()):
        return {}
    before, now = meanings(at, old), meanings(at, new)
    made_of = {}
    for column in dict.fromkeys((*new, *old)):
        was, is_ = before.get(column), now.get(column)
        if was != is_:
            made_of[column] = frozenset().union(*(meaning.of for meaning in (was, is_) if meaning is not None))
    return made_of


def _kept(config: Config, last: BatchCommit) -> dict[str, str]:
    """Return the aggregates of the last commit that the config has."""
    before = last.settings.rebuild.get("aggregates") or {}
    return {name: text for name, text in config.aggregates.items() if before.get(name) == text}


def had_other_columns(config: Config, settings: Settings, name: str, text: str) -> str | None:
    """Return the computed column by which an aggregate meant something else in an earlier layout of states; None if it did not."""
    at = columns_at(config)
    for layout in settings.layouts:
        if name in layout["texts"]:
            others = _other_meanings(at, columns_of(settings, at, layout["since"]), config.event.columns)
            read = next((column for column in others if aggregate_reads(config, name, text, column)), None)
            if read is not None:
                return read
    return None


def columns_of(settings: Settings, at: str, batch_id: int | None = None) -> dict[str, str]:
    """Return a batch's computed columns, by the settings of a later batch; without a batch the settings' own."""
    shape = None
    if batch_id is not None:
        shape = next((one for one in reversed(settings.shapes) if one["since"] <= batch_id), None)
    found = settings.rebuild.get(at) if shape is None else shape["columns"].get(at)
    return dict(found or {})


def next_shapes(config: Config, before: BatchCommit | None) -> Sequence[Mapping[str, Any]]:
    """Return the computed columns of batches, with the next batch's; none while no read text has changed."""
    if before is None:
        return ()
    now = {columns_at(side): dict(side.event.columns) for side in config.inputs.values()}
    was = {at: columns_of(before.settings, at) for at in now}
    known = before.settings.shapes
    if all(list(now[at].items()) == list(was[at].items()) for at in now):
        return known
    # What only came, and was no column before, can't have been read by an earlier text of `where`.
    new = {column for at in now for column, text in now[at].items() if was[at].get(column) != text}
    types = {name.rpartition(":")[2] for name in before.settings.types}
    if not known and not new & types and all(_only_grew(at, was[at], now[at]) for at in now):
        return ()
    first = known or ({"since": 0, "columns": was},)
    return (*first, {"since": before.batch_id + 1, "columns": now})


def _only_grew(at: str, old: Columns, new: Columns) -> bool:
    return not _other_meanings(at, old, new).keys() & old.keys()


def with_columns(config: Config, live: Mapping[str, Any], columns: Mapping[str, Columns]) -> dict[str, Any]:
    """Return a batch's settings of classification with its computed columns, by their keys in the config."""
    each = {name: columns.get(columns_at(side)) or {} for name, side in config.inputs.items()}
    if EVENTS in each:
        return {**live, COLUMNS: each[EVENTS]}
    return {**live, **{name: {**live[name], COLUMNS: each[name]} for name in each}}


def columns_then(config: Config, settings: Settings, batch_id: int | None = None) -> dict[str, Columns]:
    """Return the computed columns of a batch, as `columns_of`, by their keys in the config."""
    keys = [columns_at(side) for side in config.inputs.values()]
    return {at: columns_of(settings, at, batch_id) for at in keys}


def asks_otherwise(config: Config, settings: Settings) -> bool:
    """Say whether the meaning of `where` differs between a config of one input and settings."""
    at = columns_at(config)
    before = _asked(at, columns_of(settings, at), settings.live.get("where"))
    return _asked(at, config.event.columns, config.event.where) != before


def _asked(at: str, columns: Columns, where: str | None) -> Meaning | None:
    return None if where is None else meanings(at, {**columns, WHERE: where})[WHERE]


def shaped_as(config: Config, settings: Settings) -> Config:
    """Return a config of a single input with the settings' computed columns and `where`."""
    columns, where = columns_of(settings, columns_at(config)), settings.live.get("where")
    return config.model_copy(update={"event": config.event.model_copy(update={"columns": columns, "where": where})})
