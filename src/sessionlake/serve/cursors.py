"""Cursors: the position at which a listing goes on, bound to the question that it belongs to (docs/rules.md, rule 197)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b

from sessionlake.serve.refusals import RefusedError

Position = tuple[str | int, ...]
"""The last row that was sent: its key, and its times and numbers. These are left out if all rows of the key were sent."""


def write_cursor(question: str, position: Position) -> str:
    """Return the cursor of a position in the listing of a question.

    >>> read_cursor("prefix=a", write_cursor("prefix=a", ("ann", 5)))
    ('ann', 5)
    """
    return urlsafe_b64encode(json.dumps([_digest(question), *position]).encode()).decode().rstrip("=")


def read_cursor(question: str, cursor: str, numbers: int | None = None) -> Position:
    """Return the position of a cursor; RefusedError if it is none, is another question's, or has not so many `numbers`."""
    try:
        found = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        digest, key, *rest = found
        whole = all(type(part) is int and abs(part) < 1 << 63 for part in rest)
        key.encode()
    except (Error, UnicodeError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _refused() from error
    if (
        digest != _digest(question)
        or not isinstance(key, str)
        or not whole
        or len(rest) > 3
        or numbers not in (None, len(rest))
    ):
        raise _refused()
    return key, *rest


def _refused() -> RefusedError:
    return RefusedError(
        422, "cursor: is not one of this question; send it with the same parameters as before, or leave it out"
    )


def _digest(question: str) -> str:
    return blake2b(question.encode(), digest_size=8).hexdigest()
