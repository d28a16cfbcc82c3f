"""A SELECT of columns around a GROUP BY, as Spark asks for with `window_time`: other columns of the same live view."""

from sqlglot import exp

from sessionlake.propose.query.blocks import Block, refused
from sessionlake.propose.query.brackets import split
from sessionlake.propose.query.items import Item, item_of
from sessionlake.propose.query.live import Shown, interval, struct_of
from sessionlake.propose.query.results import Groups
from sessionlake.propose.query.spans import TIME
from sessionlake.propose.query.words import Found, Query, unmasked

_BEHIND = "make a pipeline of the subquery, and another one behind it (a chain), or write it in SQL over the live view (`sessionlake sql`)"


def chosen_of(query: Query, block: Block, groups: Groups) -> Groups:
    """Return the pipeline of a subquery with the columns that the query around it chooses; QueryErrors for all else around it."""
    found = Found(refused(query, block))
    around = {"where": block.where, "group by": block.group, "qualify": block.qualify}
    for word, words in around.items():
        if words:
            told = f"is around a subquery; {_BEHIND}"
            found.errors.append(query.refusal("_".join(word.split()), words, told, word=word))
    found.raise_any()
    before, groups.shown = groups.shown, []
    for tokens in split(block.select):
        item = item_of(query, tokens)
        with found.kept():
            groups.shown += _columns(query, item, groups, before)
    found.raise_any()
    return groups


def _columns(query: Query, item: Item, groups: Groups, before: list[Shown]) -> list[Shown]:
    if item.is_star:
        return before
    tree, bound = item.tree, None
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == TIME and len(tree.expressions) == 1:
        tree, bound = tree.expressions[0], TIME
    by_name = {column.name.lower(): column for column in before}
    if isinstance(tree, exp.Column):
        name = unmasked(tree.name).lower()
        inside = by_name.get(unmasked(tree.table).lower())
        if bound is None and inside is not None and name in ("start", "end"):
            tree, bound = exp.column(tree.table), name
            name = inside.name.lower()
        column = by_name.get(name)
        if column is not None and bound is None:
            return [Shown(column.sql, item.alias or column.name)]
        if column is not None and column.sql == struct_of(groups.start, groups.end):
            sql = {"start": groups.start, "end": groups.end, TIME: f"{groups.end} - {interval(1)}"}[str(bound)]
            return [Shown(sql, item.alias or (f"{TIME}({column.name})" if bound == TIME else str(bound)))]
    told = f"is no column of the subquery, nor a bound or the time of its window; {_BEHIND}"
    raise query.refusal("select", item.tokens, told)
