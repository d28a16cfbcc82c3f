"""Pages of some shards, which make a page of all of them: what servers ask of each other for ranges of keys (docs/rules.md, rule 205)."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

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
        try:
            return cls(*_FORM.validate_json(text))
        except ValidationError as error:
            raise ValueError("no part of a page") from error


_FORM: TypeAdapter[tuple[list[tuple[str, int, str]], tuple[str, int] | None]] = TypeAdapter(
    tuple[list[tuple[str, int, str]], tuple[str, int] | None]
)


def together(parts: Sequence[Part]) -> Part:
    """Return the rows of all parts up to where each of them goes."""
    # Text sorts by its code points, which is the order of its UTF-8 bytes.
    reached = min((part.reached for part in parts if part.reached is not None), default=None)
    rows = sorted((row for part in parts for row in part.rows), key=itemgetter(0, 1))
    if reached is not None:
        rows = [row for row in rows if row[:2] <= reached]
    return Part(rows, reached)


def position_of(place: tuple[str, int], *, keyed: bool) -> Position:
    """Return what a cursor keeps of a place; of a keyed table's rows the key alone."""
    return place[:1] if keyed else place
