"""Pages of some shards, which servers request from each other and merge into a page of all (docs/rules.md, rules 205 and 206)."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from sessionlake.serve.cursors import Position
from sessionlake.serve.refusals import RefusedError

HEADER = b"sessionlake-part"
"""The header of a request for a part: the batch and the shards, as in "41:0,2"."""


@dataclass(frozen=True)
class PartRequest:
    """The part that is asked for."""

    batch_id: int
    shards: frozenset[int]

    @property
    def text(self) -> str:
        """The text of the header."""
        return f"{self.batch_id}:{','.join(map(str, sorted(self.shards)))}"

    @classmethod
    def of(cls, header: bytes | None) -> "PartRequest | None":
        """Parse a header; None if there is none. RefusedError if it can't be parsed."""
        if header is None:
            return None
        batch, _, shards = header.partition(b":")
        try:
            return cls(int(batch), frozenset(map(int, shards.split(b","))))
        except ValueError as error:
            raise RefusedError(
                422, f"{HEADER.decode()}: {header[:100]!r} names no part; it is for servers, leave it out"
            ) from error


@dataclass(frozen=True)
class Part:
    """The first rows of some shards, as JSON, by key (its UTF-8 bytes) and start, and how far they go."""

    rows: Sequence[tuple[str, int, str]]
    """For each row the key, the start in microseconds (0 if rows have none), and its JSON."""
    reached: tuple[str, int] | None
    """The last place, inclusive, up to which no row is missing; None if that is the end."""

    def json(self) -> bytes:
        """Return the part as one server sends it to another."""
        return to_json((self.rows, self.reached))

    @classmethod
    def from_json(cls, text: bytes) -> "Part":
        """Invert `json`; ValueError for anything else."""
        return cls(*_read(_PAGE, text))


@dataclass(frozen=True)
class OpenPart:
    """The longest open sessions of some shards, as JSON, the longest first."""

    rows: Sequence[tuple[int, int, str, str]]
    """For each row the length and the start in microseconds, the key, and its JSON."""
    complete: bool
    """Whether all were looked at."""

    def json(self) -> bytes:
        """Return the part as one server sends it to another."""
        return to_json((self.rows, self.complete))

    @classmethod
    def from_json(cls, text: bytes) -> "OpenPart":
        """Invert `json`; ValueError for anything else."""
        return cls(*_read(_OPEN, text))


T = TypeVar("T")
_PAGE = TypeAdapter(tuple[list[tuple[str, int, str]], tuple[str, int] | None])
_OPEN = TypeAdapter(tuple[list[tuple[int, int, str, str]], bool])


def _read(form: TypeAdapter[T], text: bytes) -> T:
    try:
        return form.validate_json(text)
    except ValidationError as error:
        raise ValueError("no part of a page") from error


def together(parts: Sequence[Part]) -> Part:
    """Return the rows of all parts, up to the first place at which a part ends."""
    # Text sorts by its code points, which is the order of its UTF-8 bytes.
    reached = min((part.reached for part in parts if part.reached is not None), default=None)
    rows = sorted((row for part in parts for row in part.rows), key=itemgetter(0, 1))
    if reached is not None:
        rows = [row for row in rows if row[:2] <= reached]
    return Part(rows, reached)


def longest(parts: Sequence[OpenPart], limit: int) -> OpenPart:
    """Return the longest sessions of all parts; among equally long ones the earlier start comes first, then the smaller key."""
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: (-row[0], *row[1:3]))
    return OpenPart(rows[:limit], all(part.complete for part in parts))


def position_of(place: tuple[str, int], *, keyed: bool) -> Position:
    """Return the part of a place that a cursor keeps; for a keyed table's rows the key only."""
    return place[:1] if keyed else place
