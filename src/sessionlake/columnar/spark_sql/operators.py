"""Rules of expressions: literals, columns, operators, and conditionals."""

from collections.abc import Mapping
from fractions import Fraction

from sqlglot import exp

from sessionlake.columnar.spark_sql.decimals import MOST, as_decimal, as_double, common_digits, computed, literal_digits
from sessionlake.columnar.spark_sql.typed import PAGE, Rule, Typed, Walk, composed_type, quoted

_SECOND = 1_000_000
_UNITS = {"MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": _SECOND, "MINUTE": 60 * _SECOND, "HOUR": 3600 * _SECOND}
_UNITS |= {"DAY": 86_400 * _SECOND, "WEEK": 7 * 86_400 * _SECOND}
_MONTHS = {"MONTH": 1, "YEAR": 12}
_NUMBERS = {"bigint", "double", "decimal", "null"}


def _literal(walk: Walk, node: exp.Expression) -> Typed:
    text = node.name
    if node.is_string:
        if "\0" in text:
            raise walk.error(node, "has a character of the number 0; leave it out")
        return Typed(quoted(text), "string")
    if "e" in text.lower():
        return Typed(f"{text}::double", "double")
    if "." in text:
        digits = literal_digits(text)
        if digits[0] > MOST:
            raise walk.error(node, f"has too many digits; write {MOST} at most")
        return Typed(as_decimal(text, digits), "decimal", digits)
    if int(text) >= 1 << 63:
        raise walk.error(node, "is too large; write a number of 64 bits")
    return Typed(f"{text}::bigint", "bigint")


def _true_or_false(walk: Walk, node: exp.Expression) -> Typed:
    del walk
    return Typed(node.sql("duckdb"), "boolean")


def _null(walk: Walk, node: exp.Expression) -> Typed:
    del walk, node
    return Typed("null", "null")


def _column(walk: Walk, node: exp.Expression) -> Typed:
    if not isinstance(walk.seen(node.this), exp.Identifier):
        raise walk.error(node, "is no column; write its name")
    return walk.column(node)


def _paren(walk: Walk, node: exp.Expression) -> Typed:
    inner = walk.of(node.this)
    return Typed(f"({inner.sql})", inner.type, inner.digits)


def _logic(word: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        return Typed(f"({walk.boolean(node.this)} {word} {walk.boolean(node.expression)})", "boolean")

    return rule


def _not(walk: Walk, node: exp.Expression) -> Typed:
    return Typed(f"(not {walk.boolean(node.this)})", "boolean")


def _comparable(walk: Walk, node: exp.Expression, parts: list[exp.Expression]) -> list[str]:
    done = [walk.of(part) for part in parts]
    types = {part.type for part in done}
    if "months" in types:
        raise walk.error(node, "compares months, which are not all as long; write days")
    _refuse_composed(walk, node, done, "compares")
    if types <= {"bigint", "decimal", "null"}:
        return [part.sql for part in done]
    return walk.unified(node, done)[0]


def _refuse_composed(walk: Walk, node: exp.Expression, parts: list[Typed], verb: str) -> None:
    composed = next((part.type for part in parts if composed_type(part.type) is not None), None)
    if composed is not None:
        raise walk.error(
            node, f"{verb} values of type {composed}, which is not listed; take a field, an element or the size"
        )


def _compared(word: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        left, right = _comparable(walk, node, [node.this, node.expression])
        return Typed(f"({left} {word} {right})", "boolean")

    return rule


def _in(walk: Walk, node: exp.Expression) -> Typed:
    if not node.expressions:
        raise walk.error(node, "has no values; write some between the brackets")
    one, *many = _comparable(walk, node, [node.this, *node.expressions])
    return Typed(f"({one} in ({', '.join(many)}))", "boolean")


def _between(walk: Walk, node: exp.Expression) -> Typed:
    one, low, high = _comparable(walk, node, [node.this, node.args["low"], node.args["high"]])
    return Typed(f"({one} >= {low} and {one} <= {high})", "boolean")


def _is(walk: Walk, node: exp.Expression) -> Typed:
    what = walk.seen(node.expression)
    if isinstance(what, exp.Null):
        return Typed(f"({walk.of(node.this).sql} is null)", "boolean")
    if not isinstance(what, exp.Boolean):
        raise walk.error(node, f"is not listed; {PAGE}")
    return Typed(f"({walk.boolean(node.this)} is {what.sql('duckdb')})", "boolean")


def _case(walk: Walk, node: exp.Expression) -> Typed:
    arms = [walk.seen(arm) for arm in node.args["ifs"]]
    if node.this:
        subject = walk.seen(node.this)
        conditions = [walk.boolean(exp.EQ(this=subject.copy(), expression=arm.this.copy())) for arm in arms]
    else:
        conditions = [walk.boolean(arm.this) for arm in arms]
    otherwise = node.args.get("default")
    return _chosen(walk, node, conditions, [arm.args["true"] for arm in arms], otherwise)


def _if(walk: Walk, node: exp.Expression) -> Typed:
    return _chosen(walk, node, [walk.boolean(node.this)], [node.args["true"]], node.args.get("false"))


def nvl2(walk: Walk, node: exp.Expression) -> Typed:
    """Translate `nvl2(value, if not null, if null)`."""
    value, one, other = node.expressions
    return _chosen(walk, node, [f"{walk.of(value).sql} is not null"], [one], other)


def _chosen(
    walk: Walk,
    node: exp.Expression,
    conditions: list[str],
    values: list[exp.Expression],
    otherwise: exp.Expression | None,
) -> Typed:
    parts = [*(walk.of(value) for value in values), walk.of(otherwise) if otherwise else Typed("null", "null")]
    texts, type_ = walk.unified(node, parts)
    pairs = " ".join(f"when {when} then {then}" for when, then in zip(conditions, texts, strict=False))
    return Typed(f"(case {pairs} else {texts[-1]} end)", type_, common_digits(parts))


def _first_of(word: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        parts = [walk.of(part) for part in (node.this, *node.expressions)]
        if word != "coalesce":
            _refuse_composed(walk, node, parts, "orders")
        texts, type_ = walk.unified(node, parts)
        if type_ == "months":
            raise walk.error(node, "chooses among months, which are not all as long; write days")
        return Typed(f"{word}({', '.join(texts)})", type_, common_digits(parts))

    return rule


def _nullif(walk: Walk, node: exp.Expression) -> Typed:
    first = walk.of(node.this)
    left, right = _comparable(walk, node, [node.this, node.expression])
    return Typed(f"(case when {left} = {right} then null else {first.sql} end)", first.type, first.digits)


def _sum(word: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        left, right = walk.of(node.this), walk.of(node.expression)
        if word == "+" and left.type in ("interval", "months") and right.type in ("timestamp", "date"):
            left, right = right, left
        match left.type, right.type:
            case "timestamp", "interval":
                return Typed(f"make_timestamp(epoch_us({left.sql}) {word} {right.sql})", "timestamp")
            case "timestamp", "months":
                return Typed(f"({left.sql} {word} {right.sql})", "timestamp")
            case "date", "months":
                return Typed(f"cast({left.sql} {word} {right.sql} as date)", "date")
            case "timestamp", "timestamp" if word == "-":
                return Typed(f"(epoch_us({left.sql}) - epoch_us({right.sql}))", "interval")
            case "interval", "interval":
                return Typed(f"({left.sql} {word} {right.sql})", "interval")
            case "date", "interval":
                raise walk.error(node, "has a date; write date_add, or cast it to timestamp")
        return _number(walk, node, word, left, right)

    return rule


def _product(walk: Walk, node: exp.Expression) -> Typed:
    left, right = walk.of(node.this), walk.of(node.expression)
    if {left.type, right.type} == {"interval", "bigint"}:
        return Typed(f"({left.sql} * {right.sql})", "interval")
    return _number(walk, node, "*", left, right)


def _number(walk: Walk, node: exp.Expression, word: str, left: Typed, right: Typed) -> Typed:
    types = {left.type, right.type}
    if not types <= _NUMBERS:
        raise walk.error(node, f"has {' and '.join(sorted(types))} side by side; cast them to numbers")
    if "decimal" in types and "double" not in types:
        if "null" in types:
            raise walk.error(node, "has null beside a decimal; leave it out")
        return computed(walk, node, word, left, right)
    type_ = "double" if "double" in types else "bigint"
    return Typed(f"({_as(left, type_)} {word} {_as(right, type_)})", type_)


def _as(part: Typed, type_: str) -> str:
    return as_double(part) if type_ == "double" else f"cast({part.sql} as {type_})"


def _quotient(word: str, type_: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        left, right = walk.of(node.this), walk.of(node.expression)
        types = {left.type, right.type}
        if "decimal" in types and types <= {"decimal", "bigint"}:
            return computed(walk, node, word, left, right)
        if not types <= {"bigint", type_, "null"} and not (type_ == "double" and types <= _NUMBERS):
            raise walk.error(node, f"has {left.type} and {right.type}; cast them to {type_}")
        return Typed(f"({_as(left, type_)} {word} nullif({_as(right, type_)}, 0))", type_)

    return rule


def _negated(walk: Walk, node: exp.Expression) -> Typed:
    inner = walk.of(node.this)
    if inner.type not in ("bigint", "double", "decimal", "interval", "months"):
        raise walk.error(node, f"has a {inner.type}; cast it to a number")
    return Typed(f"(-{inner.sql})", inner.type, inner.digits)


def _interval(walk: Walk, node: exp.Expression) -> Typed:
    amount, unit = (walk.seen(node.args[name]) if node.args.get(name) else None for name in ("this", "unit"))
    name = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    size = (_UNITS | _MONTHS).get(name)
    try:
        total = Fraction(amount.name) * (size or 0) if isinstance(amount, exp.Literal) else None
    except ValueError:
        total = None
    if total is None or size is None:
        raise walk.error(node, "is not listed; write a number and a unit, or multiply: n * interval 1 hour")
    if total.denominator != 1 or abs(total) >= 1 << 63:
        raise walk.error(node, "must be whole microseconds or whole months, as in interval 4 hours")
    return Typed(f"interval ({total}) month", "months") if name in _MONTHS else Typed(f"({total})::bigint", "interval")


OPERATORS: Mapping[type[exp.Expression], Rule] = {
    exp.Literal: _literal,
    exp.Boolean: _true_or_false,
    exp.Null: _null,
    exp.Column: _column,
    exp.Paren: _paren,
    exp.And: _logic("and"),
    exp.Or: _logic("or"),
    exp.Not: _not,
    exp.EQ: _compared("="),
    exp.NEQ: _compared("<>"),
    exp.LT: _compared("<"),
    exp.LTE: _compared("<="),
    exp.GT: _compared(">"),
    exp.GTE: _compared(">="),
    exp.NullSafeEQ: _compared("is not distinct from"),
    exp.NullSafeNEQ: _compared("is distinct from"),
    exp.In: _in,
    exp.Between: _between,
    exp.Is: _is,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _first_of("coalesce"),
    exp.Greatest: _first_of("greatest"),
    exp.Least: _first_of("least"),
    exp.Nullif: _nullif,
    exp.Add: _sum("+"),
    exp.Sub: _sum("-"),
    exp.Mul: _product,
    exp.Div: _quotient("/", "double"),
    exp.IntDiv: _quotient("//", "bigint"),
    exp.Mod: _quotient("%", "bigint"),
    exp.Neg: _negated,
    exp.Interval: _interval,
}
