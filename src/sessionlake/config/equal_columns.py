"""The columns that a text of `on` names, of joins and lookups alike."""

import re

from sessionlake.column_names import key_name

_NAME = r"(?:`(?:[^`]|``)+`|[^=`])+?"
_SIDE = rf"\s*(?:(?i:cast)\(\s*({_NAME})\s+(?i:as\s+string)\s*\)|({_NAME}))\s*"
_EQUAL = re.compile(f"{_SIDE}(?:={_SIDE})?")


def equal_columns(text: str) -> tuple[str, str] | None:
    """Return the two columns of a text that names columns of equal values; None if it names none, or has another `=`.

    Each may be a path or an element, and may stand in a cast to string (`cast_columns`). A part with `=` needs backquotes.

    >>> equal_columns("id"), equal_columns("order_id = id"), equal_columns("id ="), equal_columns("a = b = c")
    (('id', 'id'), ('order_id', 'id'), None, None)
    >>> equal_columns("cast(order_id as string) = id"), cast_columns("cast(order_id as string) = id")
    (('order_id', 'id'), (True, False))
    >>> equal_columns("`a=b`"), equal_columns("cast(`a=b` as string) = `c``d`")
    (('a=b', 'a=b'), ('a=b', '`c``d`'))
    >>> equal_columns("user.id = id"), equal_columns("`user.id` = tags[0]"), equal_columns("user. = id")
    (('user.id', 'id'), ('`user.id`', 'tags[0]'), None)
    """
    found = _EQUAL.fullmatch(text)
    if found is None:
        return None
    left, right = (cast_ or plain for cast_, plain in (found.groups()[:2], found.groups()[2:]))
    try:
        return key_name(left), key_name(right or left)
    except ValueError:
        return None


def cast_columns(text: str) -> tuple[bool, bool]:
    """Say of each of the two columns that a text names whether it is compared as a text."""
    found = _EQUAL.fullmatch(text)
    return (False, False) if found is None else (found[1] is not None, found[3] is not None)
