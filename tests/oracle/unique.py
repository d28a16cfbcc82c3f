"""Which events are taken, by a dictionary that forgets nothing: written from rules 220 to 223 alone."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass
class UniqueModel:
    """The events of one input that an operator sees, and the numbers of the others; times in microseconds."""

    unique_for: int
    retention: float
    longest_id: int = 1 << 16
    in_order: bool = False
    """Whether of several copies in a batch the first one counts; else the one with the least columns."""
    filtered: Callable[[Row], bool] = lambda _: False
    """Says of a row whether it is no event."""
    refused: Callable[[Row], bool] = lambda _: False
    """Says of an event whether the operator refuses it before it computes."""
    raises: Callable[[Row], bool] = lambda _: False
    """Says of an event whether the operator refuses it when it computes: then it is not remembered."""
    taken: set[tuple[str, int, str]] = field(default_factory=set)

    def batch(self, rows: Sequence[Row], watermark: float) -> tuple[list[int], Counter[str]]:
        """Return the places of the events that are taken, with those that have nothing to do with identities, and numbers.

        `watermark` is that of the batch before.
        """
        passed, counts = [], Counter[str]()
        least: dict[tuple[str, int, str], int] = {}
        for place, row in enumerate(rows):
            time = row["time_us"]
            if self.filtered(row) or row["key"] is None or time < watermark - self.retention:
                passed.append(place)
            elif not row["id"] or len(row["id"].encode()) > self.longest_id or time < watermark - self.unique_for:
                counts["unknown"] += 1
            elif self.refused(row):
                passed.append(place)
            else:
                named = self.identity(row)
                best = least.get(named)
                if named in self.taken or best is not None:
                    counts["duplicate"] += 1
                if named not in self.taken and (
                    best is None or (not self.in_order and _columns(row) < _columns(rows[best]))
                ):
                    least[named] = place
        self.taken |= {named for named, place in least.items() if not self.raises(rows[place])}
        return sorted([*passed, *least.values()]), counts

    def identity(self, row: Row) -> tuple[str, int, str]:
        """Return what tells an event from others (rule 220)."""
        return row["key"], row["time_us"], row["id"]


def _columns(row: Row) -> tuple[Any, ...]:
    return row["v"], row["tag"]
