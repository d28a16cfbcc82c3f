"""Functions of numbers for expressions: rounding, and buckets."""

from collections.abc import Mapping

from sqlglot import exp

from sessionlake.columnar.spark_sql.decimals import CLEAR, MOST, as_decimal
from sessionlake.columnar.spark_sql.typed import Function, Rule, Typed, Walk, number, once

_MOST_DIGITS = 18
_ROUNDED = (
    "case when {0} is null or isnan({0}) or abs({0}) >= 4503599627370496 then {0} "
    f"when {CLEAR} then round({{0}} * {{2}}) / {{2}} "
    "else cast(cast(cast(cast({0} as varchar) as decimal(38, {1})) as varchar) as double) end + 0"
)
"""A double rounded half up by its shortest text, as Java does it: from 2^52 on all are whole. There is no negative zero."""
_ROUNDED_BEFORE = (
    "case when {0} is null or isnan({0}) or abs({0}) >= 1e37 then {0} "
    "else cast(cast(round(cast(cast(trunc({0}) as varchar) as decimal(38, 0)), {1}) as varchar) as double) end + 0"
)
"""The same at tens, hundreds and so on; from 1e37 on no text has a digit there."""
_WHOLE_ROUNDED = "try_cast((abs({0}::hugeint) + {1} // 2) // {1} * {1} * sign({0}) as bigint)"
_TO_WHOLE = (
    "(case when isnan(@) then 0 when @ >= 9223372036854775807::double then 9223372036854775807 "
    "when @ <= -9223372036854775808::double then -9223372036854775808 else cast(@ as bigint) end)"
)
"""A double as Java makes a whole number of it: at a bound if it is beyond, 0 of NaN."""
_BUCKET = """(case when {0} is null or {1} is null or {2} is null or {3} is null or {3} <= 0 or {3} = 9223372036854775807 or isnan({0}) or {1} = {2} or not isfinite({1}) or not isfinite({2}) then null
when {1} < {2} then case when {0} < {1} then 0 when {0} >= {2} then {3} + 1 else cast(trunc({3}::double * ({0} - {1}) / ({2} - {1})) as bigint) + 1 end
else case when {0} > {1} then 0 when {0} <= {2} then {3} + 1 else cast(trunc({3}::double * ({1} - {0}) / ({1} - {2})) as bigint) + 1 end end)"""


def _rounded(walk: Walk, node: exp.Expression) -> Typed:
    operand, *digits = node.expressions
    value = walk.of(operand)
    places = number(walk, digits[0]) if digits else 0
    if places is None or abs(places) > _MOST_DIGITS:
        raise walk.error(node, f"is not listed; write a number of digits from -{_MOST_DIGITS} to {_MOST_DIGITS}")
    if value.type == "double":
        if not places:
            # Java's way to round knows no negative zero.
            return Typed(f"(round({value.sql}) + 0)", "double")
        return Typed(once(_ROUNDED if places > 0 else _ROUNDED_BEFORE, value.sql, str(places), f"1e{places}"), "double")
    if value.type in ("bigint", "null"):
        sql = value.sql if places >= 0 else once(_WHOLE_ROUNDED, value.sql, f"{10**-places}::hugeint")
        return Typed(sql, value.type)
    if value.type != "decimal":
        raise walk.error(node, f"has a {value.type}; cast it to a number")
    return _rounded_decimal(walk, node, value, places)


def _rounded_decimal(walk: Walk, node: exp.Expression, value: Typed, places: int) -> Typed:
    """Return a decimal that is rounded half up, with Spark's digits."""
    precision, scale = value.digits
    if not precision:
        raise walk.error(node, "has a decimal whose digits are not known; cast it, as in cast(x as decimal(10, 2))")
    whole = precision - scale + 1
    if places < 0:
        digits = (min(max(whole, 1 - places), MOST), 0)
    else:
        digits = (min(whole + min(places, scale), MOST), min(places, scale))
    sql = f"round({value.sql}, {places})" if places < scale else value.sql
    return Typed(as_decimal(sql, digits), "decimal", digits)


def _whole(word: str) -> Rule:
    """Return the rule of `floor` and `ceil`."""

    def rule(walk: Walk, node: exp.Expression) -> Typed:
        value = walk.of(node.this)
        match value.type:
            case "double":
                return Typed(_TO_WHOLE.replace("@", f"{word}({value.sql})"), "bigint")
            case "bigint" | "null":
                return Typed(value.sql, value.type)
            case "decimal":
                precision, scale = value.digits
                return Typed(
                    f"{word}({value.sql})", "decimal", (min(precision - scale + 1, MOST), 0) if precision else (0, 0)
                )
        raise walk.error(node, f"is called with a {value.type}; cast it to a number")

    return rule


def _absolute(walk: Walk, node: exp.Expression) -> Typed:
    value = walk.of(node.this)
    if value.type not in ("bigint", "double", "decimal", "null"):
        raise walk.error(node, f"is called with a {value.type}; cast it to a number")
    return Typed(f"abs({value.sql})", value.type, value.digits if value.type == "decimal" else (0, 0))


_REAL = "double|bigint|decimal"
NUMBER_RULES: Mapping[str, Rule] = {"round": _rounded}
NUMBER_SHAPES: Mapping[type[exp.Expression], Rule] = {
    exp.Floor: _whole("floor"),
    exp.Ceil: _whole("ceil"),
    exp.Abs: _absolute,
}
NUMBER_FUNCTIONS: Mapping[str, Function] = {
    **dict.fromkeys(
        ("sign", "signum"),
        Function(
            "(case when isnan({0}::double) then 'nan'::double when {0} > 0 then 1::double when {0} < 0 then -1::double else {0}::double end)",
            "double",
            (_REAL,),
        ),
    ),
    "width_bucket": Function(
        _BUCKET.replace("{0}", "({0})::double").replace("{1}", "({1})::double").replace("{2}", "({2})::double"),
        "bigint",
        (_REAL, _REAL, _REAL, "bigint"),
    ),
}
