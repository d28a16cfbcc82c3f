"""The config's keys that name columns of the source, for example `event.time`: the error says them if the source lacks the column."""

import re
from collections.abc import Iterator, Mapping

from sessionlake.aggregates import AggregateSpec
from sessionlake.aggregates.spec import build_custom
from sessionlake.config.fields import as_columns
from sessionlake.config.load import Config
from sessionlake.config.problems import Problem
from sessionlake.errors import MissingColumnsError, SessionlakeError, did_you_mean


def missing_columns(config: Config, error: MissingColumnsError) -> Iterator[Problem]:
    """Yield a problem for each key that names a column which the source of an input lacks."""
    source = config.source
    declare = "" if source.entry.is_table else f", or declare it in [{source.AT}.types]"
    for column in error.missing:
        near = did_you_mean(column, error.known)
        reason = f"is no column of {source.place!r}{near}; write one of {', '.join(error.known)}{declare}"
        users = dict(users_of(config, column))
        for key, text in users.items():
            quoted = f"; if it is a text, write '{column}'" if _is_compared(column, text) else ""
            yield Problem(
                key, f"{column!r} {reason}" if text == column else f"{text!r} reads {column!r}, which {reason}{quoted}"
            )
        if not users:
            yield Problem(source.place_at, f"{column!r} {reason}")


def _is_compared(column: str, text: str) -> bool:
    """Say whether a column stands behind a comparison, as a text without quotes does."""
    return re.search(rf"(=|<>|<|>)\s*{re.escape(column)}(?!\w)", text) is not None


def users_of(config: Config, column: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of an input's config that name a column, with their texts."""
    for name in ("key", "time", "id", "explode", "explode_outer"):
        if column in as_columns(getattr(config.event, name)):
            yield f"{config.event_at}.{name}", column
    compared = (f"{config.lookup_at}.{lookup.name}.on" for lookup in config.lookup if column in lookup.of_event)
    yield from ((key, column) for key in compared)
    shaping = [(f"columns.{name}", text) for name, text in config.event.columns.items()]
    for name, text in (("where", config.event.where or ""), *shaping):
        if re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text):
            yield f"{config.event_at}.{name}", text
    for name, text in config.aggregates.items():
        spec = AggregateSpec.parse(name, text)
        if column in spec.inputs or any(_names(sql, column) for sql in spec.computed):
            yield f"aggregates.{name}", text
    ours = config.source.AT.removesuffix("source")
    section = config.section.model_dump(exclude_unset=True, exclude={"aggregates"})
    beside = {name: section.pop(name) for name in config.section.BESIDE if name in section}
    for key, text in (
        *_texts(config.operator, section),
        *(found for pair in beside.items() for found in _texts(*pair)),
    ):
        is_ours = not key.startswith(("join.left.", "join.right.")) or key.startswith(ours)
        if is_ours and ".source." not in key and _names(text, column):
            yield key, text


def readers_of(config: Config, input_: str, column: str, aggregates: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys of an input's config by which stored results depend on a computed column: all but `where`, which is asked once.

    `aggregates` are the aggregates with states. A key that reads every column says so.
    """
    own = {"key": config.event.key_columns, "time": (config.event.time,), "id": config.event.id_columns}
    yield from (f"{config.event_at}.{name}" for name, columns in own.items() if column in columns)
    if config.source.takes_back and _names(config.event.where or "", column):
        # A row is taken back if it was let pass before, and only then.
        yield f"{config.event_at}.where"
    for key, read in config.section.reads(input_).items():
        if read is None:
            yield f"{key}, which is not written and so has every column,"
        elif _names(read, column) if isinstance(read, str) else column in read:
            yield key
    yield from (f"aggregates.{n}" for n, text in aggregates.items() if aggregate_reads(config, n, text, column))


def aggregate_reads(config: Config, name: str, text: str, column: str) -> bool:
    """Say whether an aggregate reads a column; a class without names reads all, and an unloadable class may."""
    spec = AggregateSpec.parse(name, text)
    if spec.path is None:
        return column in spec.inputs or any(_names(sql, column) for sql in spec.computed.values())
    try:
        inputs = build_custom(name, spec.path, config.pipeline.code).inputs
    except SessionlakeError:
        return True
    return not inputs or column in inputs


def _names(text: str, column: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text) is not None


def _texts(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield a section's texts by key, a list's as single names."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(f"{key}.{name}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(key, inner)
    elif isinstance(value, str):
        yield key, value
