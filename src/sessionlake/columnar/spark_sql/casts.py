"""Casts that expressions may have.

A text is cast as Spark reads it. DuckDB by itself would read more forms, for example 1_000 or 1e3 as a bigint.

Doubles are not cast to text: their last digit depends on Java's version. Of times in texts the usual forms are read by DuckDB,
and others by `columnar/lenient_times.py`. A time without a date is null: in Spark it is one of today.
"""

import re

from sqlglot import exp

from sessionlake.columnar.datetime_letters import written
from sessionlake.columnar.lenient_times import DATE_FUNCTION, TIME_FUNCTION
from sessionlake.columnar.plain_numbers import PLAIN_FUNCTION
from sessionlake.columnar.spark_sql.decimals import MOST, OF_BIGINT, OF_INT, double_as_decimal
from sessionlake.columnar.spark_sql.typed import DUCK, PAGE, Typed, Walk, quoted, whole

_BLANKS = r"[\x00-\x20]*"
"""Characters that Spark strips from both ends of a text before a cast."""
_WHOLE = f"^{_BLANKS}([+-]?[0-9]+){_BLANKS}$"
_FRACTION = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NO_NUMBER = r"[+-]?NaN|(?i:nan|[+-]?inf(?:inity)?)"
"""Java's and Spark's texts for NaN and infinity: a sign before NaN goes with these letters alone."""
_FLOAT = f"^{_BLANKS}({_FRACTION}|{_NO_NUMBER}){_BLANKS}$"
_SUFFIXED = f"^{_BLANKS}({_FRACTION})[dDfF]{_BLANKS}$"
_DAY = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_HOUR = "([01]?[0-9]|2[0-3])"
_CLOCK_TIME = rf"{_HOUR}:[0-5]?[0-9](:[0-5]?[0-9](\.[0-9]{{0,9}})?( ?(Z|UTC))?)?"
_DATE = f"^{_BLANKS}({_DAY})([ T].*)?{_BLANKS}$"
_TIMESTAMP = f"^{_BLANKS}{_DAY}([ T]{_CLOCK_TIME})?{_BLANKS}$"
"""The forms that literals may have."""
_USUAL_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_USUAL_TIME = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,6})?( ?(Z|UTC)|[+-](0[0-9]|1[0-7]):[0-5][0-9])?$"
)
"""What DuckDB casts as Spark does, but for the word UTC, and a day that no month has."""
_NAMES = {
    "INT": "int",
    "BIGINT": "bigint",
    "DOUBLE": "double",
    "TEXT": "string",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
}
"""Spark's types, as sqlglot calls them."""
_INT = "cast(try_cast(@ as integer) as bigint)"
"""A whole number of 32 bits: null beyond, where Spark fails."""


def _read(pattern: str, type_: str) -> str:
    return f"try_cast(nullif(regexp_extract(@, {quoted(pattern)}, 1), '') as {type_})"


_IN_ISO = r"regexp_replace(@, '( ?UTC| Z|([0-9]:[0-9]{2}:[0-9]{2}(\.[0-9]+)?))$', '\2Z')"
"""A usual time with a zone as ISO 8601 has it."""
_WORD = f"lower(regexp_replace(@, '^{_BLANKS}|{_BLANKS}$', '', 'g'))"
_CASTS = {
    ("string", "bigint"): _read(_WHOLE, "bigint"),
    ("string", "double"): _read(_FLOAT, "double").replace("@", rf"regexp_replace(@, {quoted(_SUFFIXED)}, '\1')"),
    ("string", "boolean"): (
        f"(case when {_WORD} in ('t', 'true', 'y', 'yes', '1') then true "
        f"when {_WORD} in ('f', 'false', 'n', 'no', '0') then false end)"
    ),
    ("string", "date"): (
        f"(case when regexp_matches(@, {quoted(_USUAL_DATE)}) then try_cast(@ as date) "
        f"else date '1970-01-01' + {DATE_FUNCTION}(@) end)"
    ),
    ("string", "timestamp"): (
        f"(case when regexp_matches(@, {quoted(_USUAL_TIME)}) then make_timestamp(epoch_us(try_cast({_IN_ISO} as timestamptz))) "
        f"else make_timestamp({TIME_FUNCTION}(@)) end)"
    ),
    ("bigint", "double"): "cast(@ as double)",
    ("bigint", "string"): "cast(@ as varchar)",
    ("bigint", "boolean"): "(@ <> 0)",
    ("decimal", "double"): "cast(cast(@ as varchar) as double)",
    ("decimal", "bigint"): "try_cast(trunc(@) as bigint)",
    ("decimal", "string"): "cast(@ as varchar)",
    ("decimal", "boolean"): "(@ <> 0)",
    ("double", "boolean"): "(@ <> 0)",
    ("boolean", "double"): "cast(cast(@ as bigint) as double)",
    ("bigint", "timestamp"): "make_timestamp(@ * 1000000)",
    ("timestamp", "bigint"): "(epoch_us(date_trunc('second', @)) // 1000000)",
    ("timestamp", "double"): "(epoch_us(@) / 1000000::double)",
    ("timestamp", "string"): (
        f"(case when year(@) between 1 and 9999 then cast(@ as varchar) else {written('yyyy-MM-dd HH:mm:ss').replace('{0}', '@')} "
        "|| rtrim(rtrim(strftime(@, '.%f'), '0'), '.') end)"
    ),
    ("double", "bigint"): "try_cast(trunc(@) as bigint)",
    ("boolean", "bigint"): "cast(@ as bigint)",
    ("boolean", "string"): "cast(@ as varchar)",
    ("timestamp", "date"): "cast(@ as date)",
    ("date", "timestamp"): "cast(@ as timestamp)",
    (
        "date",
        "string",
    ): f"(case when year(@) between 1 and 9999 then cast(@ as varchar) else {written('yyyy-MM-dd').replace('{0}', '@')} end)",
}
"""By the types from and to; @ stands for the value."""
_DECIMAL = "DECIMAL"
_NUMBER_TEXT = f"nullif(regexp_extract(@, {quoted(f'^{_BLANKS}({_FRACTION}){_BLANKS}$')}, 1), '')"
_TO_DECIMAL = {
    "bigint": "@",
    "decimal": "@",
    "boolean": "cast(@ as bigint)",
    "string": f"(case when regexp_matches(@, '[eE]') then {PLAIN_FUNCTION}({_NUMBER_TEXT}) else {_NUMBER_TEXT} end)",
}
"""By type what is cast to a decimal, rounded half up; null if there are too many digits."""


def cast(walk: Walk, node: exp.Expression) -> Typed:
    """Translate a cast, and the literals `date '...'` and `timestamp '...'`, which are casts of a text."""
    value, to = walk.of(node.this), walk.seen(node.args["to"])
    if isinstance(to, exp.DataType) and to.this.value == _DECIMAL:
        return _to_decimal(walk, node, value, to)
    name = _NAMES.get(to.this.value) if isinstance(to, exp.DataType) and not to.expressions else None
    if name is None:
        raise walk.error(node, f"is not listed; {PAGE}")
    if name == "int":
        return Typed(_INT.replace("@", cast_to(walk, node, value, "bigint").sql), "bigint", OF_INT)
    return cast_to(walk, node, value, name)


def _to_decimal(walk: Walk, node: exp.Expression, value: Typed, to: exp.DataType) -> Typed:
    given = [whole(walk.seen(walk.seen(param).this)) for param in to.expressions]
    precision, scale = (*given, 10, 0)[:2] if not given else (*given, 0)[:2]
    # The parser has 1.5BD as a cast without digits.
    if (
        (not given and isinstance(node.this, exp.Literal))
        or precision is None
        or scale is None
        or not max(1, scale) <= precision <= MOST
        or scale == MOST
    ):
        raise walk.error(
            node, f"is not listed; write decimal(p, s) with up to {MOST} digits, of which s are behind the point"
        )
    if value.type not in (*_TO_DECIMAL, "double", "null"):
        raise walk.error(node, f"casts a {value.type} to decimal, which is not listed; {PAGE}")
    if value.type == "double":
        return Typed(double_as_decimal(value.sql, (precision, scale)), "decimal", (precision, scale))
    sql = _TO_DECIMAL.get(value.type, "@").replace("@", value.sql)
    return Typed(f"try_cast({sql} as decimal({precision}, {scale}))", "decimal", (precision, scale))


def cast_to(walk: Walk, node: exp.Expression, value: Typed, name: str) -> Typed:
    """Return a part as another type; `node` is what errors name."""
    if value.type in (name, "null"):
        return Typed(f"cast({value.sql} as {DUCK[name]})", name, OF_BIGINT if name == "bigint" else (0, 0))
    if (value.type, name) not in _CASTS:
        raise walk.error(node, f"casts a {value.type} to {name}, which is not listed; {PAGE}")
    # A literal in the config must not become null.
    pattern = {"date": _DATE, "timestamp": _TIMESTAMP}.get(name)
    literal = node.this if isinstance(node, exp.Cast) else node
    if pattern and literal.is_string and not re.fullmatch(pattern, literal.name):
        raise walk.error(node, f"is no {name}; write it as in '2024-01-31' or '2024-01-31 12:00:00', in UTC")
    return Typed(_CASTS[value.type, name].replace("@", value.sql), name, OF_BIGINT if name == "bigint" else (0, 0))
