"""Keys as somebody has written them, and as tables have them: equal numbers have one text (docs/rules.md, rule 465)."""

import pyarrow as pa

from sessionlake.columnar.equality import asked_text
from sessionlake.config.joint_keys import joint_text, parts_of
from sessionlake.config.load import Config
from sessionlake.config.names import column_of
from sessionlake.sources.columns import type_named
from sessionlake.warehouse.batch_commit import BatchCommit


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
    """Return the types of the columns that make the key; those of texts for columns without a known one."""
    input_, columns = next(iter(config.keys.items()))
    known = {**last.settings.types, **last.settings.computed}
    return [type_named(known.get(column_of(input_, column), "string")) for column in columns]
