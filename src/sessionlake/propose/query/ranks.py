"""`row_number() over (partition by ... order by ...)`: the call that a condition compares with 1, and its parts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import TokenType, exp

from sessionlake.propose.query.blocks import Block
from sessionlake.propose.query.brackets import Tokens, conjuncts, inner_of, split
from sessionlake.propose.query.items import Item
from sessionlake.propose.query.words import Query, QueryError, name_of

RANK = "row_number() over (partition by key order by time desc)"
_FORM = f"write {RANK} in a subquery, and its alias = 1 in WHERE outside"
_NUMBERED = re.compile(r"(=|<=|<)\s*(\d+)$")
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

    `items` are those of the SELECT that numbers rows: `inner`, or without a subquery `block`.
    """
    named = {item.alias.lower(): item.tokens for item in items if isinstance(item.tree, exp.Window) and item.alias}
    found, rest = None, []
    for tokens in [*conjuncts(block.qualify), *(conjuncts(block.where) if inner is not None else [])]:
        left = _first(query.said(tokens))
        name = "" if left is None else left.rpartition(".")[2].strip("`").lower()
        if found is None and left is not None and (name in named or _CALLED.match(left)):
            found = named.get(name, tokens)
        else:
            rest.append(tokens)
    if found is None:
        place = (block.qualify or block.where or [block.start])[0]
        raise QueryError("row_number", f"no condition keeps the first row of each key; {_FORM}", query.place(place))
    partition, order = _parts(query, found)
    return Rank(partition, order, frozenset(named), rest)


def _parts(query: Query, tokens: Tokens) -> tuple[list[Tokens], list[Tokens]]:
    """Return the expressions of PARTITION BY and ORDER BY."""
    if name_of(tokens[0]) != "row_number":
        raise query.refusal("row_number", tokens, f"may keep several rows of a key; {_FORM}")
    over = next(number for number, token in enumerate(tokens) if token.token_type == TokenType.OVER)
    inside = inner_of(tokens[over + 1 :]) or []
    kinds = (TokenType.PARTITION_BY, TokenType.ORDER_BY)
    starts = [number for number, token in enumerate(inside) if token.token_type in kinds]
    parts = {
        inside[start].token_type: split(inside[start + 1 : end])
        for start, end in zip(starts, [*starts[1:], len(inside)], strict=False)
    }
    if set(parts) != set(kinds):
        raise query.refusal("row_number", tokens, f"lacks PARTITION BY or ORDER BY; write {RANK}")
    return parts[TokenType.PARTITION_BY], parts[TokenType.ORDER_BY]


def _first(text: str) -> str | None:
    """Return the left side of a comparison that only the number 1 passes; None for another condition."""
    match = _NUMBERED.search(text)
    if match is None or (match[1], match[2]) not in (("=", "1"), ("<=", "1"), ("<", "2")):
        return None
    return text[: match.start()].strip()
