"""A join of two streams on equality and a range of times, as pairs of messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType, exp

from sessionlake.propose.choose import unit_of
from sessionlake.propose.keyed import is_plain
from sessionlake.propose.query.blocks import Block, refused, shown
from sessionlake.propose.query.distances import Distance, distances_of
from sessionlake.propose.query.inputs import Input, new_input, take_all_hints
from sessionlake.propose.query.items import Item, item_of
from sessionlake.propose.query.live import Shown, identifier
from sessionlake.propose.query.words import (
    Found,
    Query,
    QueryError,
    Tokens,
    conjuncts,
    name_of,
    parsed,
    split,
)
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import TIMESTAMP

_FORM = "write a.id = b.id and b.t between a.t and a.t + interval 1 hour"
_BEHIND = "make a pipeline of the join alone, and another one behind it (a chain)"


@dataclass
class Side:
    """One of the two streams."""

    input: Input
    name: str
    columns: list[str] = field(default_factory=list)
    size_us: int | None = None
    """How long its messages wait for a partner; None for ever."""


@dataclass
class Pairs:
    """A pipeline of a join."""

    left: Side
    right: Side
    on: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    view: str = "joins_live"

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both."""
        return self.left, self.right


def pairs_of(query: Query, block: Block, samples: Sequence[Sample]) -> Pairs:
    """Return the pipeline of a join of two tables; QueryErrors with all that no pipeline can have."""
    found = Found(refused(query, block))
    with found.kept():
        table, condition = _joined(query, block)
        if len(samples) != 2:
            told = f"joins two tables; samples: {len(samples)}"
            said, place = shown(query.said(block.joins[0])), query.place(block.joins[0][0])
            raise QueryError("join", f"{said!r} {told}; pass that of FROM and that of JOIN, in this order", place)
        left = new_input(query, samples[0], block.source, at="join.left.event")
        right = new_input(query, samples[1], table, at="join.right.event")
        sides = (
            Side(left, left.fields.names[-1].rpartition(".")[2]),
            Side(right, right.fields.names[-1].rpartition(".")[2]),
        )
        return _Reader(query, block, Pairs(*sides), condition, found).pairs()
    raise found.all


def _joined(query: Query, block: Block) -> tuple[Tokens, Tokens]:
    """Return the table that is joined and the condition; QueryError for a join of another kind, or of more tables."""
    first = block.joins[0]
    at = next(number for number, token in enumerate(first) if token.token_type == TokenType.JOIN)
    kinds = [name_of(token) for token in first[:at]]
    if kinds not in ([], ["inner"]):
        told = f"{shown(query.said(first))!r} is no inner join; a pipeline has the rows with a partner alone"
        raise QueryError("join", f"{told}, and those without one are SQL over both sources", query.place(first[0]))
    if len(block.joins) > 1:
        second = block.joins[1]
        told = f"{shown(query.said(second))!r} is a third table; a pipeline joins two, and another one behind it can join the next (a chain)"
        raise QueryError("join", told, query.place(second[0]))
    on = next(
        (number for number, token in enumerate(first) if token.token_type in (TokenType.ON, TokenType.USING)), None
    )
    if on is None or first[on].token_type == TokenType.USING:
        told = f"{shown(query.said(first))!r} has no ON; {_FORM}"
        raise QueryError("join", told, query.place(first[0]))
    return first[at + 1 : on], first[on + 1 :]


class _Reader:
    def __init__(self, query: Query, block: Block, pairs: Pairs, condition: Tokens, found: Found) -> None:
        self._query, self._block, self._pairs, self._found = query, block, pairs, found
        self._condition = condition
        for tokens in (block.group, block.qualify):
            if tokens:
                told = f"{shown(query.said(tokens))!r} is beside a join; {_BEHIND}"
                found.errors.append(QueryError("group_by", told, query.place(tokens[0])))

    def pairs(self) -> Pairs:
        conditions = [*conjuncts(self._condition), *conjuncts(self._block.where)]
        own: tuple[list[Tokens], list[Tokens]] = ([], [])
        ranges: list[tuple[Tokens, list[Distance]]] = []
        for tokens in conditions:
            with self._found.kept():
                of = self._sides_of(tokens)
                if len(of) == 1:
                    own[of.pop()].append(tokens)
                elif not self._equality(tokens):
                    ranges.append((tokens, self._distances(tokens)))
        with self._found.kept():
            self._set_range(ranges)
        for side, chosen in zip(self._pairs.sides, own, strict=True):
            with self._found.kept():
                side.input.set_where(chosen)
        take_all_hints(self._query, [side.input for side in self._pairs.sides], self._found)
        self._found.raise_any()
        for item in [item_of(self._query, tokens) for tokens in split(self._block.select)]:
            with self._found.kept():
                self._show(item)
        self._found.raise_any()
        return self._pairs

    def _sides_of(self, tokens: Tokens) -> set[int]:
        """Return the numbers of the sides whose columns an expression reads."""
        found = set()
        for column in parsed(self._query.said(tokens)).find_all(exp.Column):
            found.add(self._side_of(column.name, column.table, tokens[0]))
        return found or {0}

    def _side_of(self, name: str, table: str, token: Token) -> int:
        sides = self._pairs.sides
        if table:
            having = [n for n, side in enumerate(sides) if table.lower() in side.input.fields.names]
        else:
            having = [n for n, side in enumerate(sides) if name.lower() in map(str.lower, side.input.fields.types)]
        if len(having) != 1:
            told = (
                "is no column of either sample" if not having else "may be of either table; write its table before it"
            )
            raise QueryError("column", f"{f'{table}.{name}' if table else name!r} {told}", self._query.place(token))
        return having[0]

    def _equality(self, tokens: Tokens) -> bool:
        """Take a condition that is an equality of one column of each side; False for another one."""
        at = next((n for n, token in enumerate(tokens) if token.token_type == TokenType.EQ), None)
        tree = parsed(self._query.said(tokens))
        if at is None or not isinstance(tree, exp.EQ):
            return False
        parts = [tokens[:at], tokens[at + 1 :]]
        of = [self._sides_of(part) for part in parts]
        if sorted(map(len, of)) != [1, 1] or of[0] == of[1]:
            return False
        if of[0] == {1}:
            parts.reverse()
        names = []
        for side, part in zip(self._pairs.sides, parts, strict=True):
            names.append(side.input.fields.column(side.input.fields.piece(part), f"key_{len(self._pairs.on) + 1}"))
        self._pairs.on.append(names[0] if names[0] == names[1] else f"{names[0]} = {names[1]}")
        return True

    def _distances(self, tokens: Tokens) -> list[Distance]:
        """Return the bounds of a condition on both times; QueryError for another condition."""
        found = distances_of(parsed(self._query.said(tokens)))
        if not found or not all(self._is_time(column, tokens) for one in found for column in (one.later, one.earlier)):
            said = shown(self._query.said(tokens))
            told = f"{said!r} compares both sides by neither an equality nor a range of times; {_FORM}, and other conditions in SQL over the live view"
            raise QueryError("on", told, self._query.place(tokens[0]))
        return found

    def _is_time(self, column: exp.Column, tokens: Tokens) -> bool:
        side = self._pairs.sides[self._side_of(column.name, column.table, tokens[0])].input
        names = [name for name in side.sample.types if name.lower() == column.name.lower()]
        return bool(names) and unit_of(side.sample.head()[names[0]], names[0], strict=True) != ""

    def _set_range(self, ranges: list[tuple[Tokens, list[Distance]]]) -> None:
        """Take the bounds of right time - left time as the sizes of the sides."""
        if not ranges:
            place = self._query.place(self._condition[0] if self._condition else self._block.start)
            raise QueryError("on", f"the join has no range of times, so that a message waits for ever; {_FORM}", place)
        low: int | None = None
        high: int | None = None
        times: tuple[set[str], set[str]] = (set(), set())
        for tokens, distances in ranges:
            for distance in distances:
                ends = [self._end(one.name, one.table, tokens) for one in (distance.later, distance.earlier)]
                if ends[0][0] == ends[1][0]:
                    raise QueryError(
                        "on",
                        f"{shown(self._query.said(tokens))!r} compares two times of one side; {_FORM}",
                        self._query.place(tokens[0]),
                    )
                for number, name in ends:
                    times[number].add(name)
                # later - earlier <= most: of right - left it is an upper bound, of left - right a lower one.
                if ends[0][0] == 1:
                    high = distance.most_us if high is None else min(high, distance.most_us)
                else:
                    low = -distance.most_us if low is None else max(low, -distance.most_us)
        first = ranges[0][0]
        for side, names in zip(self._pairs.sides, times, strict=True):
            if len(names) != 1:
                raise QueryError(
                    "on",
                    f"{', '.join(sorted(names))!r}: a side has one event time; {_FORM}",
                    self._query.place(first[0]),
                )
            side.input.set_time(side.input.fields.piece(self._time_tokens(ranges, names.pop(), side)))
        if (low is not None and low > 0) or (high is not None and high < 0):
            told = "leaves out pairs of equal times; a pipeline's range has these: widen it, and write the rest in SQL over the live view, which has left_time and right_time"
            raise QueryError("on", f"{shown(self._query.said(first))!r} {told}", self._query.place(first[0]))
        self._pairs.left.size_us = high
        self._pairs.right.size_us = None if low is None else -low

    def _end(self, name: str, table: str, tokens: Tokens) -> tuple[int, str]:
        return self._side_of(name, table, tokens[0]), name.lower()

    def _time_tokens(self, ranges: list[tuple[Tokens, list[Distance]]], name: str, side: Side) -> Tokens:
        """Return the token of a side's time."""
        for tokens, _ in ranges:
            for number, token in enumerate(tokens):
                table = (
                    name_of(tokens[number - 2]) if number > 1 and tokens[number - 1].token_type == TokenType.DOT else ""
                )
                of = self._side_of(name, table, token) if name_of(token) == name else None
                if of is not None and self._pairs.sides[of] is side:
                    return [token]
        raise AssertionError(name)

    def _show(self, item: Item) -> None:
        """Show an item of SELECT as columns of pairs."""
        if item.is_star:
            for side, name in self._starred(item):
                self._show_column(side, name, name)
            return
        of = self._sides_of(item.tokens)
        if len(of) != 1:
            told = f"{shown(item.said)!r} computes with columns of both sides; select them by themselves, and compute in SQL over the live view"
            raise QueryError("select", told, self._query.place(item.tokens[0]))
        side = self._pairs.sides[of.pop()]
        piece = side.input.fields.piece(item.tokens)
        name = item.alias or piece.tree.output_name or piece.text
        self._show_column(side, side.input.fields.column(piece, name), name)

    def _starred(self, item: Item) -> Iterator[tuple[Side, str]]:
        table = name_of(item.tokens[0]) if len(item.tokens) > 1 else None
        for side in self._pairs.sides:
            if table is None or table in side.input.fields.names:
                plain = [name for name, kind in side.input.sample.types.items() if is_plain(kind)]
                side.input.fields.read.update(plain)
                yield from ((side, name) for name in plain)

    def _show_column(self, side: Side, column: str, name: str) -> None:
        at = "left" if side is self._pairs.left else "right"
        if column == side.input.time and side.input.fields.types[column] == TIMESTAMP:
            self._pairs.shown.append(Shown(f"{at}_time", name))
            return
        if column not in side.columns:
            side.columns.append(column)
        self._pairs.shown.append(Shown(identifier(f"{side.name}_{column}"), name))
