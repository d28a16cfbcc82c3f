"""The range of times of a join: how much later the right message of a pair may be than the left one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.distances import Distance, distances_of
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.live import interval
from sessionlake.propose.query.words import Query, QueryError, parsed, unmasked

FORM = "write a.id = b.id and b.t between a.t and a.t + interval 1 hour"
SideOf = Callable[[exp.Column, Tokens], int]
"""Returns the number of the side that a column of some tokens is of: 0 is the left one."""


@dataclass
class Range:
    """The bounds of right time - left time, in microseconds; both are inclusive."""

    query: Query
    inputs: tuple[Input, Input]
    side_of: SideOf
    low: int | None = None
    high: int | None = None
    times: tuple[dict[str, Tokens], dict[str, Tokens]] = field(default_factory=lambda: ({}, {}))
    """By side the columns of the times, in small letters, with the conditions that name them."""

    def add(self, tokens: Tokens) -> None:
        """Take a condition on both times; QueryError for another condition."""
        found = distances_of(parsed(self.query.said(tokens)))
        columns = [column for one in found for column in (one.later, one.earlier)]
        if not found or not all(self.is_time(column, tokens) for column in columns):
            told = f"compares both sides by neither an equality nor a range of times; {FORM}, and other conditions in SQL over the live view"
            raise self.query.refusal("on", tokens, told)
        for distance in found:
            self._add(distance, tokens)

    def is_time(self, column: exp.Column, tokens: Tokens) -> bool:
        """Say whether a column of a condition holds times; QueryError if its side has no such column."""
        read = self.inputs[self.side_of(column, tokens)]
        name = unmasked(column.name)
        read.fields.require(name, self.query.place(tokens[0]))
        return read.is_time(name.lower())

    def set_times(self, start: Tokens) -> None:
        """Give the inputs their times; QueryError, at `start`, if there is no range."""
        if not any(self.times):
            place = self.query.place(start[0])
            raise QueryError(
                "on",
                f"the join has no range of times, so that a message waits for ever; {FORM}, or a [table_join] by hand, whose rows are kept for as long as they are there",
                place,
            )
        for read, times in zip(self.inputs, self.times, strict=True):
            tokens = next(iter(times.values()))
            if len(times) > 1:
                raise self.query.refusal("on", tokens, f"gives one side several times, {', '.join(times)}; {FORM}")
            read.set_time(read.fields.named(next(iter(times)), self.query.place(tokens[0])))

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """How long a left message waits for a later right one, and a right one for a left one; None for ever."""
        high = None if self.high is None else max(self.high, 0)
        return high, None if self.low is None else max(-self.low, 0)

    def beyond(self) -> Iterator[str]:
        """Yield the conditions on pairs that the sizes do not have: a pair of equal times is always one."""
        if self.low is not None and self.low > 0:
            yield f"right_time >= left_time + {interval(self.low)}"
        if self.high is not None and self.high < 0:
            yield f"right_time <= left_time - {interval(-self.high)}"

    def _add(self, distance: Distance, tokens: Tokens) -> None:
        later, earlier = (self.side_of(column, tokens) for column in (distance.later, distance.earlier))
        if later == earlier:
            raise self.query.refusal("on", tokens, f"compares two times of one side; {FORM}")
        for side, column in ((later, distance.later), (earlier, distance.earlier)):
            self.times[side].setdefault(unmasked(column.name).lower(), tokens)
        if later == 1:
            self.high = distance.most_us if self.high is None else min(self.high, distance.most_us)
        else:
            self.low = -distance.most_us if self.low is None else max(self.low, -distance.most_us)
