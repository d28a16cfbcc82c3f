"""A join of two streams on equality and a range of times, as message pairs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType, exp

from sessionlake.columnar.column_types import type_name
from sessionlake.propose.choose import is_plain
from sessionlake.propose.query.blocks import Block, refused
from sessionlake.propose.query.brackets import Tokens, conjuncts, split
from sessionlake.propose.query.inlined import input_of, starred
from sessionlake.propose.query.inputs import Input, take_all_hints
from sessionlake.propose.query.items import Item, item_of
from sessionlake.propose.query.live import Shown, identifier
from sessionlake.propose.query.ranges import FORM, Range
from sessionlake.propose.query.scopes import Visible
from sessionlake.propose.query.words import Found, Query, QueryError, name_of, parsed, unmasked
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import TIMESTAMP

_TYPES = {
    (): "inner",
    ("inner",): "inner",
    **{(name, *more): name for name in ("left", "right", "full") for more in ((), ("outer",))},
}
"""A pipeline's types of joins, by the words before JOIN."""
_KEPT = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}
"""By type the numbers of the sides whose rows are there without a partner, too."""
_BEHIND = "make a pipeline of the join alone, and another one behind it (a chain)"


@dataclass
class Side:
    """A stream of the two."""

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
    type: str = "inner"
    on: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    """Conditions on pairs that the live view has, too, in DuckDB's SQL."""
    view: str = "joins_live"

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both."""
        return self.left, self.right

    @property
    def inputs(self) -> list[Input]:
        """The inputs of both."""
        return [self.left.input, self.right.input]


def pairs_of(query: Query, block: Block, samples: Sequence[Sample]) -> Pairs:
    """Return the pipeline for a join of two tables; QueryErrors with all that no pipeline can have."""
    errors = Found(refused(query, block))
    with errors.kept():
        table, condition, type_ = _joined(query, block)
        if len(samples) != 2:
            reason = f"joins two tables; samples: {len(samples)}; pass that of FROM and that of JOIN, in this order"
            if not samples[1:]:
                reason = f"{reason}; a table of one row for each key, such as customers, needs no join: leave it out, and add [[lookup]] to the config (docs/lookups.md)"
            raise query.refusal("join", block.joins[0], reason)
        left = input_of(query, samples[0], block.source, block.named, at="join.left.event")
        right = input_of(query, samples[1], table, block.named, at="join.right.event")
        sides = (
            Side(left, _called(left, "left")),
            Side(right, _called(right, "right")),
        )
        return _Reader(query, block, Pairs(*sides, type_), condition, errors).pairs()
    raise errors.all


def _joined(query: Query, block: Block) -> tuple[Tokens, Tokens, str]:
    """Return the joined table, the condition and the type; QueryError for another type of join, or more tables."""
    first = block.joins[0]
    at = next(number for number, token in enumerate(first) if token.token_type == TokenType.JOIN)
    type_ = _TYPES.get(tuple(name_of(token) for token in first[:at]))
    if type_ is None:
        reason = "is neither an inner nor a left, right or full join; with a left join, the rows without a partner are SQL over the live view"
        raise query.refusal("join", first, reason)
    if len(block.joins) > 1:
        reason = "is a third table; a pipeline joins two, and another one behind it can join the next (a chain)"
        raise query.refusal("join", block.joins[1], reason)
    on = next(
        (number for number, token in enumerate(first) if token.token_type in (TokenType.ON, TokenType.USING)), None
    )
    if on is None or first[on].token_type == TokenType.USING:
        raise query.refusal("join", first, f"has no ON; {FORM}")
    return first[at + 1 : on], first[on + 1 :], type_


def _called(read: Input, otherwise: str) -> str:
    """Return the prefix of a side's columns: the last name of its table or subquery, if any."""
    return read.fields.names[-1].rpartition(".")[2] if read.fields.names else otherwise


class _Reader:
    def __init__(self, query: Query, block: Block, pairs: Pairs, condition: Tokens, found: Found) -> None:
        self._query, self._block, self._pairs, self._found = query, block, pairs, found
        self._condition = condition
        left, right = pairs.sides
        self._range = Range(
            query, (left.input, right.input), lambda column, tokens: self._side_of(column.name, column.table, tokens[0])
        )
        for tokens in (block.group, block.qualify):
            if tokens:
                found.errors.append(query.refusal("group_by", tokens, f"is beside a join; {_BEHIND}"))

    def pairs(self) -> Pairs:
        asked = conjuncts(self._condition)
        chosen = conjuncts(self._block.where)
        own: tuple[list[Tokens], list[Tokens]] = ([], [])
        same_times: list[Tokens] = []
        for number, tokens in enumerate((*asked, *chosen)):
            with self._found.kept():
                of = self._sides_of(tokens)
                self._check_outer(tokens, of, is_on=number < len(asked))
                if len(of) == 1:
                    own[of.pop()].append(tokens)
                elif self._parts(tokens) is None:
                    self._range.add(tokens)
                elif all(self._range.is_time(c, tokens) for c in parsed(self._query.said(tokens)).find_all(exp.Column)):
                    same_times.append(tokens)
                else:
                    self._equal(tokens)
        self._set_range(same_times)
        for side, chosen in zip(self._pairs.sides, own, strict=True):
            with self._found.kept():
                side.input.set_where(chosen)
        # A hint names a time, which an input has once the conditions are right.
        self._found.raise_any()
        take_all_hints(self._query, self._pairs.inputs, self._found)
        self._found.raise_any()
        for item in [item_of(self._query, tokens) for tokens in split(self._block.select)]:
            with self._found.kept():
                self._show(item)
        self._found.raise_any()
        return self._pairs

    def _set_range(self, same_times: list[Tokens]) -> None:
        """Take the range. Alone, equal times are a range; with another range they are equal columns."""
        with self._found.kept():
            is_range = not any(self._range.times)
            for tokens in same_times:
                if is_range:
                    self._range.add(tokens)
                else:
                    self._equal(tokens)
            if not self._found.errors:
                self._range.set_times(self._condition or [self._block.start])
        self._pairs.left.size_us, self._pairs.right.size_us = self._range.sizes
        self._pairs.conditions = list(self._range.beyond())
        if self._pairs.conditions and self._pairs.type != "inner":
            with self._found.kept():
                reason = f"has a range of times that equal times do not meet, so that a pipeline has pairs which a {self._pairs.type} join shows without a partner; widen it"
                raise self._query.refusal("on", self._condition, reason)

    def _check_outer(self, tokens: Tokens, of: set[int], *, is_on: bool) -> None:
        """Refuse an outer join's condition that does not choose messages; `of` are the sides that it reads."""
        kept = set(_KEPT[self._pairs.type])
        if kept and is_on and of <= kept and len(of) == 1:
            reason = f"is a condition of a {self._pairs.type} join on a side whose rows are all there; without it in ON, compare the columns in SQL over the live view"
            raise self._query.refusal("on", tokens, reason)
        if kept and not is_on and (of != kept or len(kept) > 1):
            reason = f"is a condition on rows of a {self._pairs.type} join, and some have no partner; leave it out here, and write it in SQL over the live view"
            raise self._query.refusal("where", tokens, reason)

    def _sides_of(self, tokens: Tokens) -> set[int]:
        """Return the numbers of the sides whose columns an expression reads."""
        found = set()
        for column in parsed(self._query.said(tokens)).find_all(exp.Column):
            found.add(self._side_of(column.name, column.table, tokens[0]))
        return found or {0}

    def _side_of(self, name: str, table: str, token: Token) -> int:
        sides, name = self._pairs.sides, unmasked(name)
        if table:
            having = [n for n, side in enumerate(sides) if table.lower() in side.input.fields.names]
        else:
            having = [n for n, side in enumerate(sides) if name.lower() in side.input.fields.scope.columns]
        if len(having) != 1:
            reason = (
                "is no column of either sample" if not having else "may be of either table; write its table before it"
            )
            raise QueryError("column", f"{f'{table}.{name}' if table else name!r} {reason}", self._query.place(token))
        return having[0]

    def _parts(self, tokens: Tokens) -> tuple[Tokens, Tokens] | None:
        """Return both sides of an equality of the left and the right table, in this order; None for another condition."""
        at = next((n for n, token in enumerate(tokens) if token.token_type == TokenType.EQ), None)
        if at is None or not isinstance(parsed(self._query.said(tokens)), exp.EQ):
            return None
        parts = tokens[:at], tokens[at + 1 :]
        of = [self._sides_of(part) for part in parts]
        if sorted(map(len, of)) != [1, 1] or of[0] == of[1]:
            return None
        return parts if of[0] == {0} else (parts[1], parts[0])

    def _equal(self, tokens: Tokens) -> None:
        """Take an equality as equal columns; QueryError for different types: SQL casts one of them, not always without loss."""
        parts, names, types = self._parts(tokens) or (), [], []
        for side, part in zip(self._pairs.sides, parts, strict=True):
            fields = side.input.fields
            names.append(fields.column(fields.piece(part), f"key_{len(self._pairs.on) + 1}"))
            types.append(fields.types[names[-1]])
        if types[0] != types[1]:
            left, right = (type_name(kind) for kind in types)
            reason = f"compares {left} with {right}; cast one of them, so that both are of one type"
            raise self._query.refusal("on", tokens, reason)
        self._pairs.on.append(names[0] if names[0] == names[1] else f"{names[0]} = {names[1]}")

    def _show(self, item: Item) -> None:
        """Show an item of SELECT as columns of pairs."""
        if item.is_star:
            for side, one in self._starred(item):
                column = side.input.fields.column_of(one)
                side.input.fields.read.add(column)
                self._show_column(side, column, one.name)
            return
        of = self._sides_of(item.tokens)
        if len(of) != 1:
            reason = (
                "computes with columns of both sides; select them by themselves, and compute in SQL over the live view"
            )
            raise self._query.refusal("select", item.tokens, reason)
        number = of.pop()
        side = self._pairs.sides[number]
        may_be_missing = 1 - number in _KEPT[self._pairs.type]
        if may_be_missing and not isinstance(item.tree, exp.Column):
            reason = f"computes with columns of a {self._pairs.type} join that may be missing; select them by themselves, and compute in SQL over the live view"
            raise self._query.refusal("select", item.tokens, reason)
        piece = side.input.fields.piece(item.tokens)
        name = item.name or piece.text
        self._show_column(side, side.input.fields.column(piece, name), name)

    def _starred(self, item: Item) -> Iterator[tuple[Side, Visible]]:
        """Yield both sides' columns, or the named side's."""
        one_side = isinstance(item.tree, exp.Column)
        for side in self._pairs.sides:
            if not one_side or name_of(item.tokens[0]) in side.input.fields.names:
                types = side.input.sample.types
                found = starred(self._query, item, side.input.fields.scope)
                yield from ((side, one) for one in found if one.tokens or is_plain(types[one.column]))

    def _show_column(self, side: Side, column: str, name: str) -> None:
        at = "left" if side is self._pairs.left else "right"
        if column == side.input.time and side.input.fields.types[column] == TIMESTAMP:
            self._pairs.shown.append(Shown(f"{at}_time", name))
            return
        if column not in side.columns:
            side.columns.append(column)
        self._pairs.shown.append(Shown(identifier(f"{side.name}_{column}"), name))
