"""Values that are compared (docs/rules.md, rule 465): pairs of types that are refused, the cast to write, and one text for equal keys."""

from typing import NamedTuple

import pyarrow as pa

from sessionlake.columnar.column_types import stored_type, type_name
from sessionlake.columnar.equality import TEXT, asked_text, family_of
from sessionlake.config.joint_keys import joint_text, parts_of
from sessionlake.config.load import Config
from sessionlake.config.names import column_of
from sessionlake.config.problems import InvalidConfigError, Problem
from sessionlake.warehouse.batch_commit import BatchCommit


class NeverEqualError(InvalidConfigError):
    """Two columns are compared whose values are never equal."""


class Compared(NamedTuple):
    """A column in a comparison with another column."""

    name: str
    type: pa.DataType
    cast: bool
    """Whether it is compared as a text."""

    @property
    def family(self) -> str:
        """The values' family, as they are compared."""
        return TEXT if self.cast else family_of(self.type)

    @property
    def written(self) -> str:
        """The column as a config has it."""
        return f"cast({self.name} as string)" if self.cast else self.name


def check_pair(at: str, one: Compared, other: Compared) -> None:
    """Raise NeverEqualError, of the key `at`, if the values of two columns are never equal; its text has the cast to write.

    >>> check_pair("join.on", Compared("customer_id", pa.int64(), False), Compared("id", pa.string(), False))
    Traceback (most recent call last):
    sessionlake.sources.equal_types.NeverEqualError: join.on: 'customer_id' is long and 'id' is string, which are never equal; write "cast(customer_id as string) = id"
    """
    wrong = next((column for column in (one, other) if column.cast and not _has_plain_text(column.type)), None)
    if wrong is not None:
        reason = f"{wrong.name!r} is {type_name(wrong.type)}, and only whole numbers, dates, true and false may be cast here; compute a column, or change its type"
        raise NeverEqualError([Problem(at, reason)])
    if one.family == other.family:
        return
    reason = f"{one.name!r} is {_said(one)} and {other.name!r} is {_said(other)}, which are never equal"
    pair = [_cast(*both) for both in ((one, other), (other, one))]
    mended = f'write "{pair[0].written} = {pair[1].written}"'
    if (one, other) == tuple(pair):
        mended = "name columns of one kind"
    raise NeverEqualError([Problem(at, f"{reason}; {mended}")])


def _cast(one: Compared, other: Compared) -> Compared:
    """Return a column with the cast by which it may equal the other one, if there is such a cast."""
    return one._replace(cast=True) if other.family == TEXT and _has_plain_text(one.type) else one


def _said(column: Compared) -> str:
    return "cast to string" if column.cast else type_name(column.type)


def _has_plain_text(type_: pa.DataType) -> bool:
    """Say whether SQL's cast of a type to a string gives a key's text, so that the cast pairs what was paired as text before."""
    whole = pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0)
    return whole or pa.types.is_boolean(type_) or pa.types.is_date(type_) or family_of(type_) == TEXT


def asked_key(config: Config, last: BatchCommit | None, key: str) -> str:
    """Return the text of a key as tables have it, of a key as somebody has written it: numbers may be written in many ways.

    Tables of before rule 465 have keys as they came, so they are asked for as they are written.
    """
    if last is None or not last.settings.by_value:
        return key
    types = _types_of_key(config, last)
    if len(types) == 1:
        return asked_text(key, types[0])
    parts = parts_of(key, len(types))
    return key if parts is None else joint_text(list(map(asked_text, parts, types)))


def asked_prefix(config: Config, last: BatchCommit | None, prefix: str) -> str:
    """Return the beginning of keys of several columns as `asked_key` returns keys; any other text as it is."""
    if last is None or not last.settings.by_value or not prefix.startswith("[") or not prefix.endswith(","):
        return prefix
    types = _types_of_key(config, last)
    read = (parts_of(f"{prefix[:-1]}]", count) for count in range(1, len(types)))
    parts = next((found for found in read if found is not None), None)
    return prefix if parts is None else f"{joint_text(list(map(asked_text, parts, types)))[:-1]},"


def _types_of_key(config: Config, last: BatchCommit) -> list[pa.DataType]:
    """Return the types of the key's columns; string for columns without a known type."""
    input_, columns = next(iter(config.keys.items()))
    known = {**last.settings.types, **last.settings.computed}
    return [stored_type(known.get(column_of(input_, column), "string")) for column in columns]
