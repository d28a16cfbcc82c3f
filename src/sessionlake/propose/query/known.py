"""The nodes of a query that are read, each with every argument that is known (docs/rules.md, rule 464)."""

from typing import cast

from sqlglot import exp

from sessionlake.columnar.spark_sql.typed import EXPRESSIONS, Known, unread

_READ: Known = {
    **EXPRESSIONS,
    exp.Select: ("expressions", "from_", "joins", "where", "group", "having", "qualify", "with_"),
    exp.With: ("expressions",),
    exp.CTE: ("this", "alias"),
    exp.Subquery: ("this", "alias", "with_"),
    exp.Table: ("this", "db", "catalog", "alias"),
    exp.TableAlias: ("this",),
    exp.Alias: ("this", "alias"),
    exp.Join: ("this", "on", "side", "kind"),
    exp.Group: ("expressions", "all"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Dot: ("this", "expression"),
    exp.Star: ("except_",),
    exp.Window: ("this", "partition_by", "order", "over"),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Filter: ("this", "expression"),
    exp.WithinGroup: ("this", "expression"),
    exp.Distinct: ("expressions",),
    exp.RowNumber: (),
    **dict.fromkeys((exp.From, exp.Where, exp.Having, exp.Qualify, exp.IgnoreNulls, exp.RespectNulls), ("this",)),
}


def unread_in(tree: exp.Expression) -> tuple[exp.Expression, str] | None:
    """Return the first node of a query that is not read whole, and its part that is not read; None if all is known.

    Calls of aggregates are in the config as they are written, so that its own check reads their arguments.
    """
    for node in cast("list[exp.Expression]", list(tree.walk())):
        if issubclass(type(node), exp.AggFunc) and type(node) not in _READ:
            continue
        found = unread(node, _READ) if type(node) in _READ else type(node).__name__
        if found is not None:
            return node, found
    return None
