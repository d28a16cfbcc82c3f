"""Keys that questions name by their columns: `key.tenant=acme&key.user_id=u7` for the key `["acme","u7"]` (docs/keys.md)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, create_model

from sessionlake.config.joint_keys import named_key, parts_of
from sessionlake.errors import ConfigError
from sessionlake.serve.refusals import RefusedError

_PART = "key."


def with_named_key(given: Mapping[str, str], columns: Sequence[str], *, ranges: bool) -> dict[str, str]:
    """Return parameters with `key` in place of those that name its columns; with `prefix` if they name leading columns alone.

    RefusedError for columns that the key does not have, for leading columns if there are no `ranges`, and beside a key.

    >>> with_named_key({"key.tenant": "acme", "key.user_id": "u7"}, ["tenant", "user_id"], ranges=True)
    {'key': '["acme","u7"]'}
    >>> with_named_key({"key.tenant": "acme", "limit": "5"}, ["tenant", "user_id"], ranges=True)
    {'limit': '5', 'prefix': '["acme",'}
    """
    parts = {name.removeprefix(_PART): value for name, value in given.items() if name.startswith(_PART)}
    if not parts:
        return dict(given)
    rest = {name: value for name, value in given.items() if not name.startswith(_PART)}
    beside = next((name for name in ("key", "key_from", "key_to", "prefix") if name in rest), None)
    if beside is not None:
        raise RefusedError(422, f"{_PART}{next(iter(parts))}: can't be used with {beside}; leave one of them out")
    key, prefix = _named(parts, columns)
    if key is None and not ranges:
        missing = next(name for name in columns if name not in parts)
        raise RefusedError(422, f"{_PART}{missing}: is missing; name all columns of the key here")
    return {**rest, "prefix": prefix} if key is None else {**rest, "key": key}


def key_texts(keys: Sequence[str | Mapping[str, str]], columns: Sequence[str]) -> tuple[str, ...]:
    """Return keys that are texts, or columns by name, as texts; RefusedError for other columns than all of the key's."""
    return tuple(key if isinstance(key, str) else _whole(key, columns) for key in keys)


def _whole(parts: Mapping[str, str], columns: Sequence[str]) -> str:
    key, _ = _named(parts, columns) if parts else (None, "")
    if key is None:
        raise RefusedError(422, f"keys: {dict(parts)!r:.100} names not all columns of the key; add the others")
    return key


def _named(parts: Mapping[str, str], columns: Sequence[str]) -> tuple[str | None, str]:
    try:
        return named_key(parts, columns, "key")
    except ConfigError as error:
        raise RefusedError(422, str(error)) from error


def with_key_columns(row: dict[str, Any], key: str, columns: Sequence[str]) -> dict[str, Any]:
    """Return a row with the texts of its key's columns after the key; null if the key is none of several columns."""
    if not columns:
        return row
    parts = parts_of(row[key], len(columns)) or (None,) * len(columns)
    found: dict[str, Any] = {}
    for name, value in row.items():
        found[name] = value
        if name == key:
            found |= zip(columns, parts, strict=True)
    return found


def documented(asked: type[BaseModel], columns: Sequence[str]) -> type[BaseModel]:
    """Return a model of parameters with those that name the columns of a key, as /openapi.json shows it."""
    if not columns or "key" not in asked.model_fields:
        return asked
    told = "The column {} of the key; all columns in place of key"
    parts = {
        f"key_{at}": (str | None, Field(None, alias=f"{_PART}{name}", description=told.format(name)))
        for at, name in enumerate(columns)
    }
    made: dict[str, Any] = {"key": (str | None, None), **parts}
    return create_model(asked.__name__, __base__=asked, __doc__=asked.__doc__, **made)
