"""The question of a listing: rows of a key or of a range of keys, their order, and the position to start from."""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sessionlake.config.times import parse_time
from sessionlake.errors import ConfigError
from sessionlake.serve.cursors import Position
from sessionlake.serve.refusals import RefusedError
from sessionlake.serve.result_rows import ALL

_MICROS = re.compile(r"-?[0-9]{1,18}")
_PLUS = re.compile(r"(:[0-9]{2}(?:\.[0-9]+)?) ([0-9]{2}:?[0-9]{2})$")


@dataclass(frozen=True)
class Question:
    """Rows that are asked for; bounds of keys and times are inclusive, and None if open."""

    key: str | None = None
    low: str | None = None
    high: str | None = None
    prefix: str = ""
    from_us: int | None = None
    """Rows that end there or later."""
    to_us: int | None = None
    """Rows that start there or earlier."""
    descending: bool = False
    """Newest first; of one key only."""
    limit: int = 100
    include: AbstractSet[str] = frozenset()
    """Rows to show that the live view leaves out: names in `result_rows.ALL`."""
    after: Position | None = None
    """Rows that come after the one of this position."""
    keys: tuple[str, ...] | None = None
    """These keys, instead of one key or a range."""

    @property
    def named(self) -> tuple[str, ...] | None:
        """The keys that are asked for by name; None of a range."""
        return self.keys if self.key is None else (self.key,)

    @property
    def text(self) -> str:
        """The parameters that determine the rows and their order: a cursor is bound to them."""
        return repr(
            (
                self.key,
                self.low,
                self.high,
                self.prefix,
                self.from_us,
                self.to_us,
                self.descending,
                sorted(self.include),
                *([] if self.keys is None else [self.keys]),
            )
        )


def micros_of(name: str, text: str | int | None) -> int | None:
    """Return a time in microseconds: an ISO date or time, naive ones UTC, or whole microseconds; RefusedError for anything else."""
    if text is None or isinstance(text, int):
        return text
    if _MICROS.fullmatch(text):
        return int(text)
    try:
        # A plus that was not quoted comes as a space.
        return parse_time(_PLUS.sub(r"\1+\2", text), name)
    except (ConfigError, OverflowError) as error:
        raise RefusedError(
            422, f"{name}: {text!r} is no time; write '2026-01-31T12:00:00Z', or whole microseconds since 1970"
        ) from error


def included(text: str | None) -> frozenset[str]:
    """Return the names in a list such as "open,quarantined"; RefusedError for other names.

    >>> sorted(included("open,quarantined")), sorted(included(None))
    (['open', 'quarantined'], [])
    """
    names = frozenset((text or "").split(",")) - {""}
    if names - ALL:
        raise RefusedError(
            422, f"include: {text!r} is not allowed; write open, quarantined, or both with a comma between"
        )
    return names
