"""Names for a source's columns and their fields (docs/rules/shared.md, rule 460).

A name is a path in Spark's words: `user.id` is the field `id` of the column `user`. A part with a dot, a backquote or a bracket
stands in backquotes, so that each column and each field has one name.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

DEPTH = 32
"""The most parts of a name."""
ELEMENT = "_element"
"""The column, and the field of stored texts, with an exploded element's number in its row's list, from 0 on (rule 463)."""
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`\[\]]+)")
_ELEMENT = re.compile(r"(.*[^\s\]])((?:\[(?:\d+|'[^']*')\])+)", re.DOTALL)
_MARKS = frozenset(".`[]")


def column_name(text: str) -> str:
    """Return the name for a path as a config has it; ValueError if it is none, or is too deep.

    >>> column_name("user.id"), column_name("`user`.`first.name`"), column_name("`plain`")
    ('user.id', 'user.`first.name`', 'plain')
    """
    return name_of(parts_of(text))


def key_name(text: str) -> str:
    """Return the name for a path, or for a list's or a map's element, which stays as it is; ValueError for another text.

    >>> key_name("tags[0]"), key_name("`user`.id")
    ('tags[0]', 'user.id')
    """
    if not is_element(text):
        return column_name(text)
    found = _ELEMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no element; write for example tags[0] or props['plan']")
    column_name(found[1])
    return text


def is_element(name: str) -> bool:
    """Say whether a name means a list's or a map's element, which is computed and no column.

    >>> is_element("tags[0]"), is_element("`tags[0]`")
    (True, False)
    """
    return name.endswith("]")


@lru_cache(maxsize=4096)
def parts_of(name: str) -> tuple[str, ...]:
    """Return a column and the fields in each other that a name means; ValueError if it is no name.

    >>> parts_of("user.id"), parts_of("`user.id`")
    (('user', 'id'), ('user.id',))
    """
    if not _MARKS & set(name):
        return (name,)
    parts, at = [], 0
    while found := _PART.match(name, at):
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end() + 1
        if found.end() == len(name):
            return _of_depth(name, tuple(parts))
        if name[found.end()] != ".":
            break
    raise ValueError(f"{name!r} is no name of a column; write for example user.id, and a name with a dot in backquotes")


def _of_depth(name: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    if len(parts) > DEPTH:
        raise ValueError(f"{name!r} has {len(parts)} fields in each other; {DEPTH} at most can be read")
    return parts


def name_of(parts: Iterable[str]) -> str:
    """Return a column's name, or a field's.

    >>> name_of(["user", "id"]), name_of(["user.id"])
    ('user.id', '`user.id`')
    """
    return ".".join(f"`{part.replace('`', '``')}`" if _MARKS & set(part) or not part else part for part in parts)


def names_of(columns: Iterable[str]) -> list[str]:
    """Return the names for a source's columns, which may have dots.

    >>> names_of(["user", "user.id"])
    ['user', '`user.id`']
    """
    return [name_of([column]) for column in columns]


def title_of(name: str) -> str:
    """Return a result's name for a column: that of the last field.

    >>> title_of("page.url"), title_of("`page.url`"), title_of("tags[0]")
    ('url', 'page.url', 'tags[0]')
    """
    return name if is_element(name) else parts_of(name)[-1]


def is_within(name: str, column: str) -> bool:
    """Say whether a name is a column's or field's own, or that of a field in it.

    >>> is_within("items.sku", "items"), is_within("items", "items"), is_within("item", "items")
    (True, True, False)
    """
    parts, outer = parts_of(name), parts_of(column)
    return parts[: len(outer)] == outer


def titled(names: Iterable[str]) -> dict[str, str]:
    """Return the names that are not their own titles, by title; ValueError if two have one title.

    >>> titled(["page.url", "kind"])
    {'url': 'page.url'}
    """
    found: dict[str, str] = {}
    for name in names:
        other = found.setdefault(title_of(name), name)
        if other != name:
            raise ValueError(
                f"{other!r} and {name!r} would both be called {title_of(name)!r}; compute a column of another name"
            )
    return {title: name for title, name in found.items() if title != name}


def titles_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return what results' columns are called that have these columns' values."""
    return tuple(map(title_of, names))


def roots_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns, each once and as the source calls them, that some names lie in.

    >>> roots_of(["user.id", "user.name", "`a.b`"])
    ('user', 'a.b')
    """
    return tuple(dict.fromkeys(parts_of(name)[0] for name in names))
