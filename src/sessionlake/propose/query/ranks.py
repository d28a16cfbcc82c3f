"""`row_number() over (partition by ... order by ...)`: the call that a condition compares with 1, and its parts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlglot import TokenType, exp

from sessionlake.columnar.spark_sql.typed import whole
from sessionlake.propose.query.blocks import Block
from sessionlake.propose.query.brackets import Tokens, conjuncts, inner_of, split
from sessionlake.propose.query.items import Item
from sessionlake.propose.query.words import Query, QueryError, name_of, parsed, unmasked

RANK = "row_number() over (partition by key order by time desc)"
_CALL = 3
"""The tokens of `row_number()`, behind which OVER stands."""
_FORM = f"write {RANK} in a subquery, and its alias = 1 in WHERE outside"
_CALLED = re.compile(r"\b(row_number|rank|dense_rank)\s*\(\s*\)\s*over\b", re.IGNORECASE)


@dataclass(frozen=True)
class Rank:
    """A call of row_number."""

    partition: list[Tokens]
    order: list[Tokens]
    aliases: frozenset[str]
    """The names of the number, in small letters."""
    rest: list[Tokens]
    """The other conditions on the rows that are left."""


def is_ranked(query: Query, blocks: Sequence[Block]) -> bool:
    """Say whether a query numbers the rows of each key."""
    return any(_CALLED.search(query.said(words)) for block in blocks for words in (block.select, block.qualify))


def rank_of(query: Query, block: Block, inner: Block | None, items: Sequence[Item]) -> Rank:
    """Return the number that a condition compares with 1; QueryError if none does, or if it is not row_number's.

    `items` are SELECT's items with row numbers: `inner`'s, or without a subquery `block`'s.
    """
    named = {item.alias.lower(): item.tokens for item in items if isinstance(item.tree, exp.Window) and item.alias}
    rank, rest = None, []
    for tokens in [*conjuncts(block.qualify), *(conjuncts(block.where) if inner is not None else [])]:
        number = _number(parsed(query.said(tokens)))
        if rank is None and isinstance(number, exp.Column) and unmasked(number.name).lower() in named:
            rank = named[unmasked(number.name).lower()]
        elif rank is None and isinstance(number, exp.Window):
            rank = tokens
        else:
            rest.append(tokens)
    if rank is None:
        place = (block.qualify or block.where or [block.start])[0]
        raise QueryError("row_number", f"no condition keeps the first row of each key; {_FORM}", query.place(place))
    partition, order = _parts(query, rank)
    return Rank(partition, order, frozenset(named), rest)


def _parts(query: Query, tokens: Tokens) -> tuple[list[Tokens], list[Tokens]]:
    """Return the expressions of PARTITION BY and ORDER BY."""
    if name_of(tokens[0]) != "row_number":
        raise query.refusal("row_number", tokens, f"may keep several rows of a key; {_FORM}")
    over = next(number for number, token in enumerate(tokens) if token.token_type == TokenType.OVER)
    inside = inner_of(tokens[over + 1 :]) or []
    if over != _CALL or (inside and inside[0].token_type not in (TokenType.PARTITION_BY, TokenType.ORDER_BY)):
        raise query.refusal("row_number", tokens, f"has more than a pipeline can have; write {RANK}")
    kinds = (TokenType.PARTITION_BY, TokenType.ORDER_BY)
    starts = [number for number, token in enumerate(inside) if token.token_type in kinds]
    parts = {
        inside[start].token_type: split(inside[start + 1 : end])
        for start, end in zip(starts, [*starts[1:], len(inside)], strict=False)
    }
    if set(parts) != set(kinds):
        raise query.refusal("row_number", tokens, f"lacks PARTITION BY or ORDER BY; write {RANK}")
    return parts[TokenType.PARTITION_BY], parts[TokenType.ORDER_BY]


def _number(tree: exp.Expression) -> exp.Expression | None:
    """Return what a condition compares with a number, so that 1 alone passes; None for another condition."""
    if not isinstance(tree, (exp.EQ, exp.LTE, exp.LT)):
        return None
    greatest = 2 if isinstance(tree, exp.LT) else 1
    return cast("exp.Expression", tree.this) if whole(tree.expression) == greatest else None
