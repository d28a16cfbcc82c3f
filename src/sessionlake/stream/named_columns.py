"""Which keys of a config name a column of the source: what is told where the source lacks it."""

import re
from collections.abc import Iterator, Mapping

from sessionlake.aggregates import AggregateSpec
from sessionlake.config.explain import did_you_mean
from sessionlake.config.load import Config
from sessionlake.config.problems import Problem
from sessionlake.errors import MissingColumnsError


def missing_columns(config: Config, error: MissingColumnsError) -> Iterator[Problem]:
    """Yield a problem for each key that names a column which the source of an input lacks."""
    source = config.source
    place = source.topic if source.kind == "kafka" else source.path
    declare = "" if source.kind == "delta" else f", or declare it in [{source.AT}.types]"
    for column in error.missing:
        near = did_you_mean(column, error.known)
        told = f"is no column of {place!r}{near}; write one of {', '.join(error.known)}{declare}"
        users = dict(_users(config, column))
        for key, text in users.items():
            yield Problem(key, f"{column!r} {told}" if text == column else f"{text!r} reads {column!r}, which {told}")
        if not users:
            yield Problem(f"{source.AT}.{'topic' if source.kind == 'kafka' else 'path'}", f"{column!r} {told}")


def _users(config: Config, column: str) -> Iterator[tuple[str, str]]:
    """Yield the keys that name a column, with their texts."""
    for name in ("key", "time", "id"):
        if getattr(config.event, name) == column:
            yield f"{config.event_at}.{name}", column
    for name, text in config.aggregates.items():
        if column in AggregateSpec.parse(name, text).inputs:
            yield f"aggregates.{name}", text
    ours = config.source.AT.removesuffix("source")
    for key, text in _texts(config.operator, config.section.model_dump(exclude_unset=True)):
        is_ours = not key.startswith(("join.left.", "join.right.")) or key.startswith(ours)
        if is_ours and ".source." not in key and re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text):
            yield key, text


def _texts(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the texts of a section by their keys, those of a list as one name each."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(f"{key}.{name}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(key, inner)
    elif isinstance(value, str):
        yield key, value
