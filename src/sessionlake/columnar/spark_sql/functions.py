"""Functions for expressions: functions with literal arguments, and functions of fixed types."""

import json
import re
from collections.abc import Mapping

from sqlglot import exp

from sessionlake.columnar.lenient_json import FUNCTION
from sessionlake.columnar.letter_cases import LOWER_FUNCTION, lowered
from sessionlake.columnar.spark_sql.casts import cast
from sessionlake.columnar.spark_sql.numbers import NUMBER_FUNCTIONS, NUMBER_RULES, NUMBER_SHAPES
from sessionlake.columnar.spark_sql.operators import nvl2
from sessionlake.columnar.spark_sql.texts import TEXT_FUNCTIONS, TEXT_RULES
from sessionlake.columnar.spark_sql.times import TIME_FUNCTIONS, TIME_RULES
from sessionlake.columnar.spark_sql.typed import CLOCK_SQL, Function, Rule, Typed, Walk, once, quoted, whole

_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_DAY = "date|timestamp"
_MOST_GROUPS = 9
"""The groups of a pattern, from DuckDB."""
_MOST_PLACES = 2**31 - 1
_POWER = "(case when (isnan({1}::double) and {0} is not null) or (abs({0}) = 1 and isinf({1}::double)) then 'nan'::double else pow({0}, {1}) end)"
"""Java's power, which is not a number if the exponent is none, and of 1 and an infinity."""
_DIGITS = """list_transform([cast(abs(x) as varchar)], lambda d: list_transform(
[{'d': ltrim(replace(split_part(d, 'e', 1), '.', ''), '0'), 'z': length(replace(split_part(d, 'e', 1), '.', '')),
'p': length(split_part(split_part(d, 'e', 1), '.', 1)) + coalesce(try_cast(split_part(d, 'e', 2) as integer), 0)}],
lambda n: case when x < 0 then '-' else '' end || left(n.d, 1) || '.' || coalesce(nullif(rtrim(substring(n.d, 2), '0'), ''), '0')
|| 'E' || (n.p - n.z + length(n.d) - 1))[1])[1]"""
"""A double `x` as Java writes it below 0.001 and from 10,000,000 on: digits, one before the point, and the exponent."""
_NUMBER = f"""case when regexp_full_match(r, '-?[0-9]+') then r else list_transform([cast(r as double)], lambda x: case
when isinf(x) then case when x > 0 then '"Infinity"' else '"-Infinity"' end
when x = 0 or (abs(x) >= 0.001 and abs(x) < 10000000) then cast(x as varchar) else {_DIGITS} end)[1] end"""
"""Spark's text of the number `r` if it is no whole number of 64 bits; whole numbers have all digits."""
_STRING = r"""'"(\\.|[^"\\])*"'"""
_LAX = r"""',\s*[\]}]|(?i:nan|inf)'"""
"""Forms for DuckDB but not for Spark: a comma before a closing bracket, NaN and infinities; outside of texts."""
_UNLIKE = f"""not json_valid(v) or contains(v, '\\u')
or (regexp_matches(v, {_LAX}) and regexp_matches(regexp_replace(v, {_STRING}, '""', 'g'), {_LAX}))
or (length(v) > 1000 and (regexp_matches(v, '[0-9.]{{1000}}') or 2 * length(v) - length(replace(v, '{{', '')) - length(replace(v, '[', '')) > 1000))
or (length(v) > 50000 and list_max(list_transform(string_split(v, '"'), lambda part: length(part))) > 50000)"""
"""Texts that DuckDB may read in another way than Spark: with escapes by number, with one-sided forms, or near the bounds of Spark's parser."""
_LENIENT = f"{FUNCTION}(v, KEYS)"
_WHOLE_TEXT = f"""case when regexp_matches(json_extract_string(v, PATH), '[0-9][.eE]|[\\x{{10000}}-\\x{{10FFFF}}]')
then {FUNCTION}('{{"":' || json_extract_string(v, PATH) || '}}', '[""]') else json_extract_string(v, PATH) end"""
"""An object or a list, whose fractions and characters beyond 16 bits Spark writes in another way than DuckDB."""
_JSON = f"""list_transform([@], lambda v: case when v is null then null when {_UNLIKE} then {_LENIENT}
else case coalesce(json_type(v, PATH), 'NULL')
when 'NULL' then case when AGAIN then {_LENIENT} end
when 'DOUBLE' then list_transform([json_extract_string(v, PATH)], lambda r: {_NUMBER})[1]
when 'OBJECT' then {_WHOLE_TEXT} when 'ARRAY' then {_WHOLE_TEXT} else json_extract_string(v, PATH) end end)[1]"""
"""A value in a JSON text. AGAIN says if a key may be there twice: Spark goes on at the second one if the first has nothing."""
_ESCAPABLE = re.compile(r'["\\/\x00-\x1f]')
_REAL = "double|bigint"
ANY = "boolean|bigint|double|decimal|string|date|timestamp|interval"
"""The plain types; a function of these takes lists, structs and maps, too."""


def _like(walk: Walk, node: exp.Expression) -> Typed:
    """Translate `like`, `ilike`, and both with `any` or `all` of several patterns."""
    like, escape = (
        (walk.seen(node.this), walk.seen(node.expression).name) if isinstance(node, exp.Escape) else (node, "\\")
    )
    if not isinstance(like, (exp.Like, exp.ILike)):
        raise walk.error(node, "is not listed; write a text, like, and a pattern in quotes")
    patterns = _patterns(walk, like.expression)
    if patterns is None or (isinstance(node, exp.Escape) and patterns[1]):
        raise walk.error(node, "is not listed; write a text, like, and a pattern in quotes")
    text, (given, joined) = walk.text(like.this), patterns
    if isinstance(like, exp.ILike):
        text, given = f"{LOWER_FUNCTION}({text})", [lowered(pattern) for pattern in given]
    if len(escape) != 1 or not all(_escapes_well(pattern, escape) for pattern in given):
        raise walk.error(node, f"escapes what needs it not; write {escape!r} before %, _ and itself only")
    word = "not like" if like.args.get("negate") else "like"
    literals = [f"{quoted(pattern)} escape {quoted(escape)}" for pattern in given]
    if len(literals) == 1:
        return Typed(f"({text} {word} {literals[0]})", "boolean")
    numbered = f" {joined} ".join(f"{{0}} {word} {{{number}}}" for number in range(1, 1 + len(literals)))
    return Typed(once(numbered, text, *literals), "boolean")


def _patterns(walk: Walk, node: exp.Expression) -> tuple[list[str], str] | None:
    """Return the patterns behind `like`, and the word that joins several; None if one is not in quotes."""
    walk.seen(node)
    if not isinstance(node, (exp.Any, exp.All)):
        return ([node.name], "") if node.is_string else None
    inner = walk.seen(node.this)
    parts = inner.expressions if isinstance(inner, exp.Tuple) else [inner.this] if isinstance(inner, exp.Paren) else []
    if not parts or not all(walk.seen(part).is_string for part in parts):
        return None
    return [part.name for part in parts], "or" if isinstance(node, exp.Any) else "and"


def _misplaced(walk: Walk, node: exp.Expression) -> Typed:
    raise walk.error(node, "is not listed; write a list of values behind in, like any or like all")


def _escapes_well(pattern: str, escape: str) -> bool:
    after = iter(pattern)
    return all(character != escape or next(after, "") in ("%", "_", escape) for character in after)


def _rlike(walk: Walk, node: exp.Expression) -> Typed:
    text, pattern = walk.text(node.this), walk.seen(node.expression)
    if not pattern.is_string:
        raise walk.error(node, "is not listed; write a text, rlike, and a pattern in quotes")
    return Typed(f"regexp_matches({text}, {quoted(pattern.name)})", "boolean")


def _extracted(walk: Walk, node: exp.Expression) -> Typed:
    text, pattern, group = walk.text(node.this), walk.seen(node.expression), node.args.get("group")
    number = 1 if group is None else whole(walk.seen(group))
    if not pattern.is_string or number is None or not 0 <= number <= min(_groups(pattern.name), _MOST_GROUPS):
        raise walk.error(node, "is not listed; write a text, a pattern in quotes, and the number of one of its groups")
    return Typed(f"regexp_extract({text}, {quoted(pattern.name)}, {number})", "string")


def _groups(pattern: str) -> int:
    """Return the number of a pattern's groups; 0 if only RE2 reads it: DuckDB reports its errors."""
    try:
        return re.compile(pattern).groups
    except re.error:
        return 0


def _split_part(walk: Walk, node: exp.Expression) -> Typed:
    text = walk.text(node.this)
    delimiter, index = (walk.seen(node.args[name]) for name in ("delimiter", "part_index"))
    if not delimiter.is_string or not delimiter.name or not whole(index):
        raise walk.error(node, "is not listed; write a text, a delimiter in quotes, and a number from 1 on")
    return Typed(f"split_part({text}, {quoted(delimiter.name)}, {index.name})", "string")


def _joined_by(walk: Walk, node: exp.Expression) -> Typed:
    return Typed(f"concat_ws({', '.join(walk.text(part) for part in node.expressions)})", "string")


def _joined(walk: Walk, node: exp.Expression) -> Typed:
    parts = node.expressions or [node.this, node.expression]
    return Typed("(" + " || ".join(walk.text(part) for part in parts) + ")", "string")


def _trimmed(walk: Walk, node: exp.Expression) -> Typed:
    word = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
    signs = node.args.get("expression")
    return Typed(f"{word}({walk.text(node.this)}, {quoted(' ') if signs is None else walk.text(signs)})", "string")


def _substring(walk: Walk, node: exp.Expression) -> Typed:
    text, start, length = walk.text(node.this), node.args.get("start"), node.args.get("length")
    numbers = [walk.seen(part) for part in (start, length) if part is not None]
    if start is None or not whole(start) or any(whole(number) is None for number in numbers):
        raise walk.error(node, "is not listed; write substring of a text, from 1 or more on, by numbers")
    return Typed(f"substring({text}, {', '.join(number.name for number in numbers)})", "string")


def _json(walk: Walk, node: exp.Expression) -> Typed:
    text, path = walk.text(node.this), walk.seen(node.expression)
    steps = [_json_step(part) for part in path.expressions if not isinstance(part, exp.JSONPathRoot)]
    if not steps or None in steps:
        raise walk.error(node, "is not listed; write get_json_object(text, '$.name.name[0]')")
    keys = [step for step in steps if step is not None]
    place = "".join(f"[{key}]" if isinstance(key, int) else '."' + key.replace('"', '\\"') + '"' for key in keys)
    # Of a list Spark returns an element that is null as a text.
    again = " or ".join("true" if isinstance(key, int) else _may_be_twice(key) for key in keys)
    parts = {"PATH": quoted(f"${place}"), "KEYS": quoted(json.dumps(keys)), "AGAIN": again, "@": text}
    return Typed(f"try({re.sub('PATH|KEYS|AGAIN|@', lambda found: parts[found[0]], _JSON)})", "string")


def _json_step(part: exp.Expression) -> str | int | None:
    """Return a key or a place in a list; None for another part of a path."""
    if isinstance(part, exp.JSONPathKey) and isinstance(part.this, str):
        return part.this
    is_place = isinstance(part, exp.JSONPathSubscript) and type(part.this) is int and 0 <= part.this <= _MOST_PLACES
    return part.this if is_place else None


def _may_be_twice(name: str) -> str:
    if _ESCAPABLE.search(name):
        return "true"
    given = quoted(f'"{name}"')
    return f"length(v) - length(replace(v, {given}, '')) > length({given})"


def _truncated(walk: Walk, node: exp.Expression) -> Typed:
    time, unit = walk.of(node.this), walk.seen(node.args["unit"]).name.lower()
    if time.type not in ("timestamp", "null") or unit not in _TRUNCATED:
        raise walk.error(node, f"is not listed; truncate a timestamp to one of {', '.join(_TRUNCATED)}")
    return Typed(f"cast(date_trunc('{unit}', cast({time.sql} as timestamp)) as timestamp)", "timestamp")


def _date_of(walk: Walk, node: exp.Expression) -> Typed:
    """Translate sqlglot's conversions around arguments of date functions."""
    value = walk.of(node.this)
    if value.type not in ("date", "timestamp", "null"):
        raise walk.error(node.this, f"is a {value.type}; cast it to date or timestamp")
    return Typed(f"cast({value.sql} as date)", "date")


def _date_add(walk: Walk, node: exp.Expression) -> Typed:
    date, days, unit = _date_of(walk, node), walk.of(node.expression), walk.seen(node.args["unit"])
    if days.type not in ("bigint", "null") or unit.name.upper() != "DAY":
        raise walk.error(node, "is not listed; add whole days to a date")
    return Typed(f"({date.sql} + cast({days.sql} as integer))", "date")


SHAPED: Mapping[type[exp.Expression], Rule] = {
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    **dict.fromkeys((exp.Any, exp.All, exp.Tuple), _misplaced),
    exp.RegexpLike: _rlike,
    exp.DPipe: _joined,
    exp.Concat: _joined,
    exp.ConcatWs: _joined_by,
    exp.RegexpExtract: _extracted,
    exp.SplitPart: _split_part,
    exp.Trim: _trimmed,
    exp.Substring: _substring,
    exp.JSONExtractScalar: _json,
    exp.TimestampTrunc: _truncated,
    exp.TsOrDsToDate: _date_of,
    exp.TsOrDsAdd: _date_add,
    exp.Cast: cast,
    exp.TryCast: cast,
    **NUMBER_SHAPES,
}
FUNCTIONS: Mapping[type[exp.Expression], Function] = {
    exp.Sqrt: Function("(case when {0} < 0 then 'nan'::double else sqrt({0}) end)", "double", (_REAL,)),
    exp.Ln: Function("(case when {0} > 0 then ln({0}) end)", "double", (_REAL,)),
    exp.Exp: Function("exp({0})", "double", (_REAL,)),
    exp.Pow: Function(_POWER, "double", (_REAL, _REAL)),
    exp.Length: Function("length({0})", "bigint", ("string",)),
    exp.StartsWith: Function("starts_with({0}, {1})", "boolean", ("string", "string")),
    exp.EndsWith: Function("suffix({0}, {1})", "boolean", ("string", "string")),
    exp.Contains: Function("contains({0}, {1})", "boolean", ("string", "string")),
    exp.StrPosition: Function("instr({0}, {1})", "bigint", ("string", "string")),
    exp.Replace: Function("replace({0}, {1}, {2})", "string", ("string", "string", "string")),
    exp.IsNan: Function("coalesce(isnan({0}), false)", "boolean", ("double",)),
    exp.Year: Function("year({0})", "bigint", (_DAY,)),
    exp.Quarter: Function("quarter({0})", "bigint", (_DAY,)),
    exp.Month: Function("month({0})", "bigint", (_DAY,)),
    exp.Day: Function("day({0})", "bigint", (_DAY,)),
    exp.DayOfMonth: Function("day({0})", "bigint", (_DAY,)),
    exp.DayOfWeek: Function("(dayofweek({0}) + 1)", "bigint", (_DAY,)),
    exp.DayOfYear: Function("dayofyear({0})", "bigint", (_DAY,)),
    exp.Hour: Function("hour({0})", "bigint", ("timestamp",)),
    exp.Minute: Function("minute({0})", "bigint", ("timestamp",)),
    exp.Second: Function("second({0})", "bigint", ("timestamp",)),
    exp.DateDiff: Function("cast(cast({0} as date) - cast({1} as date) as bigint)", "bigint", (_DAY, _DAY)),
    exp.UnixMicros: Function("epoch_us({0})", "bigint", ("timestamp",)),
    exp.UnixMillis: Function("(epoch_us(date_trunc('millisecond', {0})) // 1000)", "bigint", ("timestamp",)),
    exp.UnixSeconds: Function("(epoch_us(date_trunc('second', {0})) // 1000000)", "bigint", ("timestamp",)),
    exp.CurrentTimestamp: Function(CLOCK_SQL, "timestamp"),
    exp.CurrentDate: Function(f"cast({CLOCK_SQL} as date)", "date"),
}
BY_NAME: Mapping[str, Function] = {
    "now": Function(CLOCK_SQL, "timestamp"),
    "isnull": Function("({0} is null)", "boolean", (ANY,)),
    "isnotnull": Function("({0} is not null)", "boolean", (ANY,)),
    "weekday": Function("(isodow(cast({0} as date)) - 1)", "bigint", ("date|timestamp",)),
    "timestamp_micros": Function("make_timestamp({0})", "timestamp", ("bigint",)),
    "timestamp_millis": Function("make_timestamp({0} * 1000)", "timestamp", ("bigint",)),
    "timestamp_seconds": Function("make_timestamp({0} * 1000000)", "timestamp", ("bigint",)),
    **TEXT_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **TIME_FUNCTIONS,
}
"""Functions that are read by their names and places of arguments: the parser knows none of them, see `dialect.py`."""
RULES_BY_NAME: Mapping[str, Rule] = {"nvl2": nvl2, **TEXT_RULES, **NUMBER_RULES, **TIME_RULES}
"""As BY_NAME, with rules of their own."""
