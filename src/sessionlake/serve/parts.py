"""Pages of some shards, which make a page of all of them: what servers ask of each other (docs/rules.md, rules 205 and 206)."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from sessionlake.serve.cursors import Position
from sessionlake.serve.refused import RefusedError

HEADER = b"sessionlake-part"
"""The header of a request for a part: the batch and the shards, as in "41:0,2"."""


@dataclass(frozen=True)
class Asked:
    """The part that is asked for."""

    batch_id: int
    shards: frozenset[int]

    @property
    def text(self) -> str:
        """What the header says."""
        return f"{self.batch_id}:{','.join(map(str, sorted(self.shards)))}"

    @classmethod
    def of(cls, header: bytes | None) -> "Asked | None":
        """Return what a header says, None where there is none; RefusedError where it says nothing that can be."""
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
    """Of each the key, the start in microseconds (0 where rows have none), and its JSON."""
    reached: tuple[str, int] | None
    """Up to where, inclusive, no row is missing; None where that is the end."""

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
    """Of each the length and the start in microseconds, the key, and its JSON."""
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
    """Return the rows of all parts up to where each of them goes."""
    # Text sorts by its code points, which is the order of its UTF-8 bytes.
    reached = min((part.reached for part in parts if part.reached is not None), default=None)
    rows = sorted((row for part in parts for row in part.rows), key=itemgetter(0, 1))
    if reached is not None:
        rows = [row for row in rows if row[:2] <= reached]
    return Part(rows, reached)


def longest(parts: Sequence[OpenPart], limit: int) -> OpenPart:
    """Return the longest sessions of all parts; of those equally long the one that began first, then by key."""
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: (-row[0], *row[1:3]))
    return OpenPart(rows[:limit], all(part.complete for part in parts))


def position_of(place: tuple[str, int], *, keyed: bool) -> Position:
    """Return what a cursor keeps of a place; of a keyed table's rows the key alone."""
    return place[:1] if keyed else place
