"""Keys of several columns as text: the compact JSON array of the columns' texts (docs/rules.md, rule 214)."""

import json
from collections.abc import Mapping, Sequence

from sessionlake.errors import ConfigError

_ESCAPES = {**{number: f"\\u{number:04x}" for number in range(0x20)}, ord('"'): '\\"', ord("\\"): "\\\\"}


def joint_text(texts: Sequence[str]) -> str:
    r"""Return the key of a row whose key columns have these texts, as `columnar.joint_keys.joint_key` makes it of columns.

    >>> joint_text(["acme", 'u"7'])
    '["acme","u\\"7"]'
    """
    return f"[{','.join(map(_quoted, texts))}]"


def parts_of(key: str, columns: int) -> tuple[str, ...] | None:
    """Return the texts of a key of a number of columns; None for any other text.

    >>> parts_of('["acme","u7"]', 2), parts_of("acme", 2)
    (('acme', 'u7'), None)
    """
    try:
        found = json.loads(key)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != columns or not all(isinstance(text, str) for text in found):
        return None
    return tuple(found)


def named_key(given: Mapping[str, str], columns: Sequence[str], at: str) -> tuple[str | None, str]:
    """Return the key that texts by column make; None, and the beginning of all their keys, if they are of leading columns alone.

    `at` begins the message of the ConfigError that is raised for other names.

    >>> named_key({"user_id": "u7", "tenant": "acme"}, ["tenant", "user_id"], "key")
    ('["acme","u7"]', '')
    >>> named_key({"tenant": "acme"}, ["tenant", "user_id"], "key")
    (None, '["acme",')
    """
    unknown = next((name for name in given if name not in columns), None)
    if unknown is not None:
        told = f"write {', '.join(columns)}" if columns else "the key is one column, write its text"
        raise ConfigError(f"{at}: {unknown!r} is no column of the key; {told}")
    leading = list(columns[: len(given)])
    if missing := next((name for name in leading if name not in given), None):
        raise ConfigError(f"{at}: {missing!r} is missing; name all columns of the key, or the first ones")
    texts = [given[name] for name in leading]
    if len(texts) == len(columns):
        return joint_text(texts), ""
    return None, f"[{''.join(f'{_quoted(text)},' for text in texts)}"


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
