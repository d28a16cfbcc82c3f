"""Subqueries: named ones of WITH, and bracketed ones of FROM."""

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import TokenType

from sessionlake.propose.query.blocks import Block, Subquery, block_of
from sessionlake.propose.query.brackets import Tokens, depth_of, inner_of, split, unwrapped
from sessionlake.propose.query.fields import without_stream
from sessionlake.propose.query.words import BEGINNINGS, Query, name_of


def select_of(query: Query, tokens: Tokens, named: Mapping[str, Subquery] = MappingProxyType({})) -> Block:
    """Return the clauses of a SELECT, after an optional WITH; `named` are the outer subqueries."""
    tokens = unwrapped(tokens)
    if tokens and tokens[0].token_type == TokenType.WITH:
        at = _main(tokens)
        named = _named(query, tokens[1:at], named)
        tokens = unwrapped(tokens[at:])
    block = block_of(query, tokens)
    block.named = named
    return block


def subquery_of(query: Query, source: Tokens, named: Mapping[str, Subquery]) -> Block | None:
    """Return the subquery behind tokens of FROM or JOIN; None for a table."""
    inside = inner_of(source)
    if inside is not None and inside and inside[0].token_type in BEGINNINGS:
        return select_of(query, inside, named)
    source = without_stream(source)
    if not source or (len(source) > 1 and source[1].token_type == TokenType.DOT):
        return None
    subquery = named.get(name_of(source[0]))
    return None if subquery is None else select_of(query, subquery.tokens, subquery.named)


def names_of(query: Query, source: Tokens) -> tuple[str, ...]:
    """Return a query's names for its subquery, in small letters; QueryError for names of its columns."""
    inside = inner_of(source)
    words = without_stream(source) if inside is None else source[len(inside) + 2 :]
    names = tuple(name_of(word) for word in words if word.token_type != TokenType.ALIAS)
    if len(names) > (1 if inside is not None else 2):
        raise query.refusal("from", source, "is no subquery with an alias alone; name its columns in its SELECT")
    return names


def whole_of(query: Query, block: Block) -> Block:
    """Return the query that is meant: without `select *`, and nothing else, around it."""
    inner = subquery_of(query, block.source, block.named)
    is_star = len(block.select) == 1 and block.select[0].token_type == TokenType.STAR
    rest = (
        block.where,
        block.group,
        block.having,
        block.qualify,
        block.joins,
        block.elsewhere,
        block.distinct,
        block.hint,
    )
    return whole_of(query, inner) if inner is not None and is_star and not any(rest) else block


def _named(query: Query, words: Tokens, around: Mapping[str, Subquery]) -> Mapping[str, Subquery]:
    """Return the subqueries that a SELECT can name. Each subquery of WITH sees the earlier ones."""
    found = dict(around)
    for part in split(words):
        inside = inner_of(part[2:]) if len(part) > 2 and part[1].token_type == TokenType.ALIAS else None
        if inside is None or len(inside) + 4 != len(part):
            raise query.refusal("with", part, "is no subquery of a pipeline's query; write name as (select ...)")
        found[name_of(part[0])] = Subquery(inside, dict(found))
    return found


def _main(tokens: Tokens) -> int:
    """Return the number of the first token after the subqueries of WITH."""
    depth = 0
    for number, token in enumerate(tokens):
        if depth == 0 and token.token_type == TokenType.SELECT:
            return number
        before = tokens[number - 1].token_type if number else None
        if depth == 0 and token.token_type == TokenType.L_PAREN and before == TokenType.R_PAREN:
            return number
        depth += depth_of(token)
    return len(tokens)
