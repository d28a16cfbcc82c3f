"""The nodes of the SQL parser that are read, each with every argument that is known (docs/rules.md, rule 464).

Minor versions of the parser give nodes new arguments: `not like` became an argument of `Like` in 30.8. An argument that nobody
reads would change what the SQL means, without a word.
"""

from collections.abc import Iterator, Mapping

from sqlglot import exp

Known = Mapping[type[exp.Expression], tuple[str, ...]]
"""By class the arguments that are read, in the order of a function's operands."""

_DIALECT: Known = {
    **dict.fromkeys((exp.DPipe, exp.Div, exp.TsOrDsToDate, exp.TryCast), ("safe",)),
    **dict.fromkeys((exp.Greatest, exp.Least), ("ignore_nulls",)),
    exp.Coalesce: ("is_nvl", "is_null"),
    exp.Concat: ("safe", "coalesce"),
    exp.ConcatWs: ("safe", "coalesce", "flatten"),
    exp.RegexpExtract: ("null_if_pos_overflow",),
}
"""Arguments that tell other dialects how Spark's function behaves: no text of Spark's SQL can change them."""
_BINARY = ("this", "expression")

EXPRESSIONS: Known = {
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), _BINARY),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.DPipe), _BINARY),
    **dict.fromkeys((exp.Is, exp.Nullif, exp.Escape, exp.RegexpLike, exp.JSONExtractScalar), _BINARY),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains, exp.DateDiff), _BINARY),
    **dict.fromkeys(
        (exp.Not, exp.Neg, exp.Paren, exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Sqrt, exp.Ln), ("this",)
    ),
    **dict.fromkeys((exp.Exp, exp.Length, exp.IsNan, exp.TsOrDsToDate, exp.Year, exp.Quarter, exp.Month), ("this",)),
    **dict.fromkeys((exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Hour, exp.Minute), ("this",)),
    **dict.fromkeys((exp.Second, exp.UnixMicros, exp.UnixMillis, exp.UnixSeconds), ("this",)),
    **dict.fromkeys((exp.Null, exp.CurrentTimestamp, exp.CurrentDate, exp.JSONPathRoot), ()),
    **dict.fromkeys((exp.Boolean, exp.Var, exp.Column, exp.DataType, exp.JSONPathKey), ("this",)),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least, exp.Anonymous, exp.In), ("this", "expressions")),
    **dict.fromkeys((exp.Concat, exp.ConcatWs, exp.JSONPath), ("expressions",)),
    **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to")),
    exp.Literal: ("this", "is_string"),
    exp.Identifier: ("this", "quoted"),
    exp.Like: ("this", "expression", "negate"),
    exp.Between: ("this", "low", "high"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Interval: ("this", "unit"),
    exp.Trim: ("this", "position"),
    exp.Substring: ("this", "start", "length"),
    exp.Replace: ("this", "expression", "replacement"),
    exp.StrPosition: ("this", "substr"),
    exp.SplitPart: ("this", "delimiter", "part_index"),
    exp.RegexpExtract: ("this", "expression", "group"),
    exp.TimestampTrunc: ("this", "unit"),
    exp.TsOrDsAdd: ("this", "expression", "unit"),
}


def operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a function, in the order of the table."""
    given = [node.args.get(name) for name in EXPRESSIONS[type(node)]]
    parts = [part for one in given for part in (one if isinstance(one, list) else [one])]
    return [part for part in parts if isinstance(part, exp.Expression)]


def unread(node: exp.Expression, known: Known = EXPRESSIONS) -> str | None:
    """Return the first argument of a node that nobody reads, as SQL or by its name; None if all are known.

    The class of the node is in the table.

    >>> import sqlglot
    >>> unread(sqlglot.parse_one("a between symmetric 1 and 2", read="spark"))
    'symmetric'
    """
    return next(_unread(node, known), None)


def _unread(node: exp.Expression, known: Known) -> Iterator[str]:
    for name, value in node.args.items():
        if name not in known[type(node)] and name not in _DIALECT.get(type(node), ()):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, exp.Expression):
                    yield part.sql("spark")
                elif part:
                    yield name
