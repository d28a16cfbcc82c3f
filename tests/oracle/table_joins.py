"""Joins of tables written from docs/rules.md, rules 309 and 323 to 326: it keeps the rows of both sides, and joins them anew each time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]
"""The equal fields, and then the columns that results have."""


class TakenBackError(Exception):
    """More rows are taken back than there are."""


@dataclass
class TableJoin:
    """A join of rows with `fields` equal fields each."""

    fields: int
    outer: Sequence[str] = ()
    rows: dict[str, Counter[Row]] = field(default_factory=lambda: {"left": Counter(), "right": Counter()})

    def batch(self, given: Sequence[tuple[str, Row, int]]) -> None:
        """Take a batch of (side, row, 1 or -1); TakenBackError, and nothing has changed, if more is taken back than there is."""
        after = {side: Counter(rows) for side, rows in self.rows.items()}
        for side, row, sign in given:
            after[side][row] += sign
        if any(number < 0 for rows in after.values() for number in rows.values()):
            raise TakenBackError
        self.rows = {side: +rows for side, rows in after.items()}

    def results(self) -> Counter[tuple[Row | None, Row | None]]:
        """Return all results, each with the columns of both sides, None for no partner."""
        found: Counter[tuple[Row | None, Row | None]] = Counter()
        sides = {side: list(rows.elements()) for side, rows in self.rows.items()}
        paired: dict[str, set[int]] = {"left": set(), "right": set()}
        for i, left in enumerate(sides["left"]):
            for j, right in enumerate(sides["right"]):
                on = left[: self.fields]
                if None not in on and on == right[: self.fields]:
                    found[left[self.fields :], right[self.fields :]] += 1
                    paired["left"].add(i)
                    paired["right"].add(j)
        for side in self.outer:
            for i, row in enumerate(sides[side]):
                if i not in paired[side]:
                    alone = row[self.fields :]
                    found[(alone, None) if side == "left" else (None, alone)] += 1
        return found
