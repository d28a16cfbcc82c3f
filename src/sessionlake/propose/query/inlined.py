"""Subqueries that choose rows and compute columns, as parts of the outer query: its input has their conditions and columns."""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from sessionlake.propose.query.blocks import Block, Subquery, refused
from sessionlake.propose.query.brackets import Tokens, split
from sessionlake.propose.query.fields import Fields, tables
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.items import Item, has_aggregate, item_of
from sessionlake.propose.query.scopes import Scope, Visible
from sessionlake.propose.query.subqueries import names_of, subquery_of
from sessionlake.propose.query.words import Found, Query, QueryError, unmasked
from sessionlake.propose.sample import Sample

_Conditions = list[tuple[Tokens, Scope]]
_BEHIND = "a subquery may choose rows and compute columns; make a pipeline of it, and another one behind it (a chain)"


def input_of(
    query: Query, sample: Sample, source: Tokens, named: Mapping[str, Subquery], *, at: str = "event"
) -> Input:
    """Return the input that FROM or JOIN reads: a table, or subqueries over it; `named` are WITH's subqueries.

    QueryErrors has all that a subquery can't have.
    """
    conditions: _Conditions = []
    scope = _scope(query, sample, source, named, conditions)
    return Input(Fields(query, scope, dict(sample.types), at), sample, conditions)


def scope_over(query: Query, block: Block, below: Scope, names: tuple[str, ...], *, ranked: bool = False) -> Scope:
    """Return a subquery's columns, from its input's; `ranked`: it may have the number of a row.

    QueryErrors has SELECT's items that are neither columns nor computed from a single row.
    """
    scope, found = Scope(names, below=below), Found()
    # As in Spark, an item may name an earlier item's alias, if no column has this name.
    seen = below
    for tokens in split(block.select):
        with found.kept():
            for one in list(_columns(query, item_of(query, tokens), seen, below, ranked=ranked)):
                _add(scope, one)
                seen = Scope(below.names, {one.name.lower(): one, **seen.columns}, below.below)
    found.raise_any()
    return scope


def _scope(
    query: Query, sample: Sample, source: Tokens, named: Mapping[str, Subquery], conditions: _Conditions
) -> Scope:
    inner = subquery_of(query, source, named)
    if inner is None:
        columns = {name.lower(): Visible(name, name) for name in sample.types}
        return Scope(tables(query, source), columns)
    Found(_refused(query, inner)).raise_any()
    below = _scope(query, sample, inner.source, inner.named, conditions)
    if inner.where:
        conditions.append((inner.where, below))
    return scope_over(query, inner, below, names_of(query, source))


def _refused(query: Query, block: Block) -> Iterator[QueryError]:
    """Yield an error for each clause that a subquery can't have."""
    for error in refused(query, block):
        if error.key == "distinct":
            reason = "'distinct' keeps one of equal rows of all time; leave it out, and write a comment as in '-- unique id 1 day'"
            yield QueryError(error.key, reason, error.place)
        else:
            yield error
    if not block.source:
        reason = "this subquery has no FROM; write a table's name: events are read from SAMPLE, whatever it is"
        yield QueryError("from", reason, query.place(block.start))
    for word, tokens in (("group by", block.group), ("qualify", block.qualify), *(("", one) for one in block.joins)):
        if tokens:
            yield query.refusal(word.replace(" ", "_") or "join", tokens, f"is in a subquery; {_BEHIND}", word=word)


def _columns(query: Query, item: Item, seen: Scope, below: Scope, *, ranked: bool) -> Iterator[Visible]:
    """Yield the columns of a SELECT item."""
    if item.is_star:
        yield from _starred(query, item, below)
    elif item.tree.find(exp.Window) is not None or has_aggregate(item.tree):
        if not ranked or not isinstance(item.tree, exp.Window):
            raise query.refusal("select", item.tokens, f"is of several rows; {_BEHIND}")
        yield Visible(item.alias or "row_number")
    elif not item.name:
        raise query.refusal("select", item.tokens, "has no alias; add one, so that it can be named outside")
    else:
        same = _named(item.tree, below)
        if same is None:
            yield Visible(item.name, tokens=item.tokens, scope=seen)
        else:
            yield Visible(item.name, same.column, same.tokens, same.scope)


def _named(tree: exp.Expression, scope: Scope) -> Visible | None:
    """Return an expression's column of a scope, alone or behind its table's name; None for other expressions."""
    if not isinstance(tree, exp.Column) or (tree.table and _table(tree) not in scope.names):
        return None
    column = scope.columns.get(unmasked(tree.name).lower())
    return None if column is None or column.twice else column


def _table(tree: exp.Column) -> str:
    """Return the name of a column's table, in small letters."""
    return ".".join(unmasked(part.name).lower() for part in tree.parts[:-1])


def starred(query: Query, item: Item, scope: Scope) -> list[Visible]:
    """Return the columns of `*`, `t.*` or `* except (a)`; QueryError if several share a name, or for another table's."""
    columns = _starred(query, item, scope)
    twice = next((one.name for one in columns if one.twice), None)
    if twice is not None:
        raise query.refusal("select", item.tokens, f"has several columns {twice!r}; give each its own alias")
    return columns


def _starred(query: Query, item: Item, scope: Scope) -> list[Visible]:
    if isinstance(item.tree, exp.Column) and _table(item.tree) not in scope.names:
        raise query.refusal("select", item.tokens, f"is of no table in FROM; write one of {', '.join(scope.names)}")
    star = item.tree.this if isinstance(item.tree, exp.Column) else item.tree
    left_out = {unmasked(node.name).lower() for node in star.args.get("except_") or ()}
    if star.args.get("replace") or star.args.get("rename") or left_out - set(scope.columns):
        raise query.refusal("select", item.tokens, "is not read; name the columns")
    return [one for name, one in scope.columns.items() if name not in left_out]


def _add(scope: Scope, one: Visible) -> None:
    name = one.name.lower()
    before = scope.columns.get(name)
    twice = before is not None and (before.column, before.tokens) != (one.column, one.tokens)
    scope.columns[name] = Visible(one.name, one.column, one.tokens, one.scope, twice=twice or one.twice)
