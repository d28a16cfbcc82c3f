"""Decimals in expressions: their digits by Spark's rules, and their arithmetic.

The digits of a result are those of https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html. They decide where a quotient is rounded,
so operands have the digits that they have in Spark, or are refused. More than 38 are refused: Spark would round.
"""

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from sessionlake.columnar.spark_sql.typed import Typed, Walk, once

MOST = 38
"""The digits that a decimal may have."""
OF_INT, OF_BIGINT = (10, 0), (20, 0)
_LEAST_SCALE, _EXACT = 6, 15
PLUS = "plus"
"""Marks a number with a plus before it, which the parser drops."""
CLEAR = "abs({0}) * {2} < 68719476736 and abs(abs({0}) * {2} - floor(abs({0}) * {2}) - 0.5) > 0.0001"
"""So far from a half that a product of doubles decides."""
_AS_DECIMAL = (
    f"case when {CLEAR} then try_cast(cast(round({{0}} * {{2}}) / {{2}} as varchar) as decimal({{3}}, {{1}})) "
    "else try_cast(try_cast(cast({0} as varchar) as decimal(38, {1})) as decimal({3}, {1})) end"
)
Digits = tuple[int, int]
"""All digits, and those behind the point."""


def literal_digits(text: str) -> Digits:
    """Return the digits of a number as it is written.

    >>> literal_digits("0.05"), literal_digits("12.50"), literal_digits("7")
    ((2, 2), (4, 2), (1, 0))
    """
    before, _, after = text.partition(".")
    return max(len((before + after).lstrip("0")), len(after), 1), len(after)


def column_digits(type_: pa.DataType) -> Digits:
    """Return the digits of a column's numbers; zeros if it has none.

    >>> column_digits(pa.decimal128(10, 2)), column_digits(pa.int16())
    ((10, 2), (5, 0))
    """
    if pa.types.is_decimal(type_):
        return type_.precision, type_.scale
    return {8: (3, 0), 16: (5, 0), 32: OF_INT, 64: OF_BIGINT}[type_.bit_width] if pa.types.is_integer(type_) else (0, 0)


def widened(parts: Sequence[Typed]) -> list[str] | None:
    """Return decimals and whole numbers as decimals of the same digits; None if these are too many or not known."""
    digits = [part.digits if part.type == "decimal" else OF_BIGINT for part in parts if part.type != "null"]
    widest = _widest(digits)
    known = all(precision for precision, _ in digits) and widest[0] <= MOST
    return [as_decimal(part.sql, widest) for part in parts] if known else None


def common_digits(parts: Sequence[Typed]) -> Digits:
    """Return the digits of interchangeable parts; zeros if Spark's are not known, as beside a whole number."""
    given = [part.digits for part in parts if part.type != "null"]
    known = all(part.type in ("decimal", "null") for part in parts) and all(precision for precision, _ in given)
    return _widest(given) if known else (0, 0)


def _widest(digits: Sequence[Digits]) -> Digits:
    scale = max((behind for _, behind in digits), default=0)
    return max((precision - behind for precision, behind in digits), default=0) + scale, scale


def double_as_decimal(sql: str, digits: Digits) -> str:
    """Return SQL of a double as a decimal, rounded half up by its shortest text; null if there are too many digits."""
    return once(_AS_DECIMAL, sql, str(digits[1]), f"1e{digits[1]}", str(digits[0]))


def as_double(part: Typed) -> str:
    """Return SQL of a number as a double: of a long decimal by its text, as only that is exact."""
    exact = part.type == "decimal" and not 0 < part.digits[0] <= _EXACT
    return f"cast(cast({part.sql} as varchar) as double)" if exact else f"cast({part.sql} as double)"


def _long(part: Typed) -> str:
    """Return SQL of a decimal of 128 bits: DuckDB multiplies shorter ones in 64."""
    return as_decimal(part.sql, (max(part.digits[0], 19), part.digits[1]))


def as_decimal(sql: str, digits: Digits) -> str:
    """Return SQL as a decimal of some digits."""
    return f"cast({sql} as decimal({digits[0]}, {digits[1]}))"


def computed(walk: Walk, node: exp.Expression, word: str, left: Typed, right: Typed) -> Typed:
    """Return `+`, `-`, `*`, `/`, `%` or `//` (the whole quotient) of two decimals, of which one may be a whole number."""
    left, right = _known(walk, node.this, left), _known(walk, node.expression, right)
    digits, within = _digits_of(word, left.digits, right.digits)
    if within > MOST:
        raise walk.error(
            node,
            f"needs {within} digits of the {MOST} that there are; cast an operand to fewer, as in cast(x as decimal(10, 2))",
        )
    one, other = _long(left), _long(right)
    match word:
        case "/":
            return Typed(_quotient(one, other, (left.digits[1], right.digits[1]), digits), "decimal", digits)
        case "//":
            return Typed(
                f"try_cast({_units(one, digits[1])} // nullif({_units(other, digits[1])}, 0) as bigint)", "bigint"
            )
        case "%":
            sql = f"{as_decimal(one, (within, digits[1]))} % nullif({as_decimal(other, (within, digits[1]))}, 0)"
        case _:
            sql = f"{one} {word} {other}"
    return Typed(as_decimal(sql, digits), "decimal", digits)


def _known(walk: Walk, node: exp.Expression, part: Typed) -> Typed:
    """Return an operand with its digits. Spark takes those of a whole number as it is written, but for `+7`, `-(7)` and `7L`."""
    while isinstance(node, exp.Paren):
        node = node.this
    literal = node.this if isinstance(node, exp.Neg) else node
    if part.type == "bigint" and isinstance(literal, exp.Literal) and not literal.meta.get(PLUS):
        return Typed(part.sql, part.type, literal_digits(literal.name))
    if not part.digits[0] or isinstance(node.this, exp.Literal):
        raise walk.error(
            node,
            f"is a {part.type} beside a decimal, whose digits are not known; cast it, as in cast(x as decimal(10, 2))",
        )
    return part


def _digits_of(word: str, left: Digits, right: Digits) -> tuple[Digits, int]:
    """Return a result's digits, and how many its computation needs."""
    (p1, s1), (p2, s2) = left, right
    scale = max(s1, s2)
    both = max(p1 - s1, p2 - s2) + scale
    if word in ("+", "-"):
        return (both + 1, scale), both + 1
    if word == "*":
        return (p1 + p2 + 1, s1 + s2), p1 + p2 + 1
    if word == "/":
        behind = max(_LEAST_SCALE, s1 + p2 + 1)
        digits = p1 - s1 + s2 + behind
        # In between, each has the zeros of its own scale behind it.
        return (digits, behind), max(digits, p1 + s1, p2 + s2)
    return (min(p1 - s1, p2 - s2) + scale, scale), both + (scale if word == "//" else 0)


def _quotient(one: str, other: str, scales: tuple[int, int], digits: Digits) -> str:
    """Return SQL of a quotient rounded half up: whole numbers of 128 bits are divided."""
    # The quotient's units are 10^-scale.
    above = f"{_units(one, scales[0])} * {10 ** (digits[1] + scales[1] - scales[0])}::hugeint"
    rounded = (
        f"list_transform([{{'a': {above}, 'b': nullif({_units(other, scales[1])}, 0)}}], lambda q: (abs(q.a) // abs(q.b) + "
        "case when 2 * (abs(q.a) % abs(q.b)) >= abs(q.b) then 1 else 0 end) * sign(q.a) * sign(q.b))[1]"
    )
    unit = as_decimal(f"'0.{1:0{digits[1]}}'", (digits[1], digits[1]))
    return as_decimal(f"{as_decimal(rounded, (digits[0], 0))} * {unit}", digits)


def _units(sql: str, scale: int) -> str:
    """Return SQL of a decimal's whole number of units of 10^-scale."""
    times = as_decimal(f"'1e{scale}'", (scale + 1, 0))
    return f"cast({sql} * {times} as hugeint)"
