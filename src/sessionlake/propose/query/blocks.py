"""The clauses of a SELECT, each as tokens, and clauses that no pipeline has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from sessionlake.propose.query.brackets import Tokens, depth_of
from sessionlake.propose.query.words import Query, QueryError, name_of, shown

_T = TokenType
_JOINS = (_T.JOIN, _T.INNER, _T.LEFT, _T.RIGHT, _T.FULL, _T.CROSS, _T.SEMI, _T.ANTI, _T.NATURAL, _T.OUTER)
_DISTINCT = (
    "group by the columns and window(t, '1 hour') for those of each hour, or, for those of all time, write a config whose event.key "
    "is these columns, with a section [group] (docs/group.md)"
)
_LIVE = "leave it out here, and write it in SQL over the live view (`sessionlake sql`)"
_REMEDIES = {
    _T.HAVING: f"a pipeline keeps all groups; {_LIVE.replace('it in', 'it as WHERE in')}",
    _T.ORDER_BY: f"rows of a stream have no order; {_LIVE}",
    _T.SORT_BY: f"rows of a stream have no order; {_LIVE}",
    _T.CLUSTER_BY: "Spark's partitions are none of a pipeline's; leave it out",
    _T.DISTRIBUTE_BY: "Spark's partitions are none of a pipeline's; leave it out",
    _T.LIMIT: f"a pipeline keeps all rows; {_LIVE}",
    _T.OFFSET: f"a pipeline keeps all rows; {_LIVE}",
    _T.LATERAL: "a pipeline makes one event of a row; explode in a job before it, and pass the sample of its output",
    _T.PIVOT: f"a pipeline has one row for each key; {_LIVE}",
    _T.UNPIVOT: f"a pipeline has one row for each key; {_LIVE}",
    _T.TABLE_SAMPLE: "a pipeline reads all events; leave it out, or choose events by WHERE",
    _T.UNION: "a pipeline is one query; make a pipeline of each, and write it in SQL over their live views (a project)",
    _T.EXCEPT: "a pipeline is one query; make a pipeline of each, and write it in SQL over their live views (a project)",
    _T.INTERSECT: "a pipeline is one query; make a pipeline of each, and write it in SQL over their live views (a project)",
}
"""Remedies for clauses that no pipeline has, by first word. HAVING goes with GROUP BY alone."""


@dataclass(frozen=True)
class Subquery:
    """A subquery of WITH."""

    tokens: Tokens
    named: Mapping[str, "Subquery"]
    """Tables that it can name itself."""


@dataclass
class Block:
    """One SELECT."""

    start: Token
    select: list[Token] = field(default_factory=list)
    distinct: Token | None = None
    source: list[Token] = field(default_factory=list)
    """The tokens of FROM, without joins."""
    hint: Token | None = None
    joins: list[list[Token]] = field(default_factory=list)
    """Each join from its first word on: the kind, the table and its ON."""
    where: list[Token] = field(default_factory=list)
    group: list[Token] = field(default_factory=list)
    having: list[Token] = field(default_factory=list)
    """From its first word on."""
    qualify: list[Token] = field(default_factory=list)
    elsewhere: list[list[Token]] = field(default_factory=list)
    """Clauses that no pipeline has, from the first word on."""
    named: Mapping[str, Subquery] = field(default_factory=dict)
    """The subqueries of WITH by name, in small letters."""


def block_of(query: Query, tokens: Tokens) -> Block:
    """Return the clauses of a SELECT; QueryError for another statement."""
    if not tokens or tokens[0].token_type != _T.SELECT:
        words = shown(query.said(tokens))
        place = query.place(tokens[0]) if tokens else query.place_at(0)
        raise QueryError("sql", f"{words!r} is no SELECT; pass the query alone, without the statement around it", place)
    block, depth = Block(tokens[0]), 0
    current: list[Token] = block.select
    before = tokens[0]
    for token in tokens[1:]:
        depth += depth_of(token)
        begun = _begun(block, current, token, before) if depth == 0 else None
        if begun is not None:
            current = begun
        elif token.token_type == _T.DISTINCT and current is block.select and not current:
            block.distinct = token
        elif token.token_type == _T.HINT:
            block.hint = token
        else:
            current.append(token)
        before = token
    return block


def _begun(block: Block, current: list[Token], token: Token, before: Token) -> list[Token] | None:
    """Return the token list of the clause that begins with a token; None if none does."""
    kind = token.token_type
    if current is block.select:
        # `is distinct from` and `except (column)` are parts of an expression.
        return block.source if kind == _T.FROM and before.token_type != _T.DISTINCT else None
    if kind in _JOINS and (current is block.source or any(current is join for join in block.joins)):
        goes_on = block.joins and current is block.joins[-1] and all(one.token_type in _JOINS for one in current)
        return None if goes_on else _new(block.joins, token)
    if kind == _T.HAVING:
        block.having.append(token)
        return block.having
    if kind in _REMEDIES:
        return _new(block.elsewhere, token)
    return {_T.WHERE: block.where, _T.GROUP_BY: block.group, _T.QUALIFY: block.qualify}.get(kind)


def _new(clauses: list[list[Token]], token: Token) -> list[Token]:
    clauses.append([token])
    return clauses[-1]


def refused(query: Query, block: Block, *, but_having: bool = False) -> Iterator[QueryError]:
    """Yield an error for each clause of a block that no pipeline has; `but_having`: HAVING is taken elsewhere."""
    if block.distinct is not None:
        reason = "'distinct' is not for a pipeline, whose rows differ by their keys"
        # Without a GROUP BY, DISTINCT is one: of its selected columns.
        reason += "; leave it out" if block.group else f"; {_DISTINCT}"
        yield QueryError("distinct", reason, query.place(block.distinct))
    if block.hint is not None:
        reason = "a hint is for Spark's plan, and a pipeline has none; leave it out"
        yield QueryError("hint", reason, query.place(block.hint))
    for tokens in [*([block.having] if block.having and not but_having else []), *block.elsewhere]:
        word = name_of(tokens[0])
        reason = f"can't be part of a pipeline: {_REMEDIES[tokens[0].token_type]}"
        yield query.refusal("_".join(word.split()), tokens, reason)
