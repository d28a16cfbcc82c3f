"""A pipeline of any operator as the shared suites see it: what a new one in `operators_table.py` begins with."""

import json
from collections import Counter
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from tests.engine.crash_support import Lake, Row, files_of

MINUTE_US = 60_000_000
FAR_S = 4_000_000_000
"""The time of an event from which on it is too far ahead of any clock."""
Rows = list[tuple[Any, ...]]


class OperatorLake(Lake):
    """A pipeline of one operator, and what its input must give."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "late", "dead")
    """The counts of which the input must give some: a fault that loses what never comes is no test."""

    outcomes: ClassVar[tuple[str, ...]] = ("applied", "stale", "malformed")
    """The outcomes that `correct`, if it asks for any corrections, must give some of."""

    def correct(self, spark: SparkSession) -> None:
        """Ask for corrections of what is there; most operators have none here."""

    def check(self) -> None:
        """Check that a run gave all that a fault could lose, or count twice."""
        totals = self.totals()
        assert {name for name in self.wanted if not totals.get(name)} == set()

    def totals(self) -> Counter[str]:
        """Return the counts of all batches together."""
        return sum((Counter(commit["counts"]) for commit in self.commits()), Counter())

    def input(self) -> list[list[Row]]:
        """Return the events of each file, in order, but for lines and events that no operator takes."""
        lines = (file.read_text().splitlines() for file in files_of(self.events))
        parsed = ([json.loads(line) for line in some if line != "{broken"] for some in lines)
        return [
            [{**row, "time": row["time"] * 1_000_000} for row in rows if row["key"] and row["time"] < FAR_S]
            for rows in parsed
        ]

    def answer(self) -> Rows:
        """Return the rows that the input must give, by the oracle: of runs that nobody corrects."""
        raise NotImplementedError

    def sent(self) -> Rows:
        """Return the rows that the changelog has, as `answer` does."""
        raise NotImplementedError

    def latest(self, *identity: str) -> list[Row]:
        """Return the newest change of each row, but of those deleted."""
        changes = sorted(self.rows(self.changelog), key=lambda row: row["batch_id"])
        newest = {tuple(row[name] for name in identity): row for row in changes}
        return [row for row in newest.values() if row["op"] == "upsert"]


def keeping_replaced(template: str) -> str:
    return template.replace("[pipeline]", "[pipeline]\nkeep_replaced = true")


def us(time: Any) -> int:
    """Return a time in microseconds since 1970."""
    return round(time.timestamp() * 1e6)
