"""SQL of what expressions may have, listed and drawn: each form negated, with its options, and within others without brackets."""

import random

import pyarrow as pa

TYPES = {
    "b": pa.bool_(),
    "i": pa.int64(),
    "j": pa.int64(),
    "x": pa.float64(),
    "y": pa.float64(),
    "n": pa.decimal128(10, 2),
    "s": pa.string(),
    "u": pa.string(),
    "t": pa.timestamp("us", "UTC"),
    "v": pa.timestamp("us", "UTC"),
    "d": pa.date32(),
    "text_of_number": pa.string(),
    "text_of_double": pa.string(),
    "text_of_date": pa.string(),
    "text_of_time": pa.string(),
    "text_of_flag": pa.string(),
    "json": pa.string(),
}
NEARLY = ["ln(x)", "exp(x)", "power(x, y)", "pow(x * 0.3D, y)", "ln(abs(i) + 0.7D)", "exp(i / 7)", "power(i, 0.3D)"]
"""Expressions of which the last digit may be another one, since each engine has its own library of mathematics."""
CASES = {
    "boolean": [
        "b and i > j or not b",
        "i = j",
        "i <> j",
        "i <= j",
        "i >= j",
        "i < 2.5",
        "x < y",
        "x = y",
        "x > i",
        "x <= 0.1",
        "n > 1.25",
        "n = i",
        "n < x",
        "s = u",
        "s < u",
        "s <=> u",
        "not (x <=> y)",
        "b <=> (i > 0)",
        "t < v",
        "d <= t",
        "d = date '2020-02-29'",
        "t >= timestamp '2020-01-31 12:30:00.5'",
        "i in (1, 2, j)",
        "s not in ('tv', 'a')",
        "i in (1, null)",
        "i between j and 5",
        "x not between 0 and y",
        "b is null",
        "i is not null",
        "b is true",
        "b is not false",
        "(i > 1) is not true",
        "if(b, i > 1, j > 1)",
        "coalesce(b, i > 1, true)",
        "s like 't%'",
        "s like '%\\\\_%'",
        "s like '_v' escape '!'",
        "s like '%!%%' escape '!'",
        "s rlike '^[0-9]+$'",
        "s rlike '(?i)^TV'",
        "s rlike '\\\\d{2}'",
        "startswith(s, u)",
        "endswith(s, u)",
        "contains(s, u)",
        "isnan(x)",
        "isnull(s)",
        "isnotnull(x)",
        "cast(i as boolean)",
        "cast(text_of_flag as boolean)",
        "interval 90 minutes > i * interval 1 second",
        "t - v < interval 3 days",
        "t < now() - interval 1 week",
        "d < current_date()",
        "current_timestamp() > v",
    ],
    "bigint": [
        "i + j",
        "i - j",
        "i * j",
        "-i",
        "i div j",
        "i % j",
        "mod(i, 7)",
        "abs(i)",
        "floor(x)",
        "ceil(x * 1.5D)",
        "ceiling(x - 0.3D)",
        "case when b then i when x > 0 then 2 else j end",
        "case i when 1 then 10 when j then 20 end",
        "nullif(i, j)",
        "greatest(i, j, 3)",
        "least(i, null, j)",
        "length(s)",
        "instr(s, u)",
        "year(t)",
        "quarter(t)",
        "month(d)",
        "day(t)",
        "dayofmonth(t)",
        "dayofweek(t)",
        "dayofyear(d)",
        "weekday(t)",
        "hour(t)",
        "minute(t)",
        "second(t)",
        "datediff(t, v)",
        "unix_micros(t)",
        "unix_millis(t)",
        "unix_seconds(t)",
        "cast(x as bigint)",
        "cast(b as bigint)",
        "cast(text_of_number as bigint)",
        "coalesce(i, j)",
    ],
    "double": [
        "x + y",
        "x - i",
        "x * 1.5D",
        "1e-3 * i",
        "i / j",
        "x / y",
        "-x",
        "cast(i as double)",
        "cast(n as double)",
        "cast(text_of_number as double)",
        "greatest(x, y)",
        "least(x, y)",
        "coalesce(x, i)",
        "if(b, x, i)",
        "round(x)",
        "round(x * 0.5D)",
        "sqrt(x)",
        *NEARLY,
    ],
    "string": [
        "s || u",
        "concat(s, '-', u)",
        "trim(s)",
        "ltrim(s)",
        "rtrim(s)",
        "substring(s, 2, 3)",
        "substring(s, 1)",
        "replace(s, u, 'x')",
        "replace(s, 'a', '')",
        "cast(i as string)",
        "cast(b as string)",
        "cast(d as string)",
        "get_json_object(json, '$.a')",
        "get_json_object(json, '$.b.c')",
        "concat_ws('-', s, u, s)",
        "concat_ws(u, s)",
        "split_part(s, 'a', 1)",
        "split_part(s, ' ', 3)",
        "regexp_extract(s, '([a-z])(.)', 2)",
        "regexp_extract(s, '(?i)t(v?)')",
        "regexp_extract(s, '[0-9]+', 0)",
        "nullif(s, u)",
        "greatest(s, u)",
        "'it\\'s' || s",
    ],
    "timestamp": [
        "t + interval 36 hours",
        "interval '1.5' seconds + t",
        "t - i * interval 1 millisecond",
        "t + interval 1 month",
        "t - interval 1 year",
        "t + -interval 2 days",
        *(
            f"date_trunc('{unit}', t)"
            for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        ),
        "timestamp_micros(i)",
        "timestamp_millis(i)",
        "timestamp_seconds(i)",
        "cast(d as timestamp)",
        "cast(text_of_time as timestamp)",
        "coalesce(t, d)",
        "greatest(t, v)",
        "now()",
    ],
    "date": [
        "date_add(d, cast(j as int))",
        "date_sub(t, 3)",
        "d + interval 1 month",
        "to_date(t)",
        "cast(t as date)",
        "cast(text_of_date as date)",
        "current_date()",
    ],
    "interval": [
        "t - v",
        "case when s = 'tv' then interval 4 hours when b then i * interval 1 minute end",
        "interval 1 day - interval 2 hours",
        "-(t - v)",
        "greatest(interval 1 hour, j * interval 1 minute)",
    ],
}
NEGATED = [
    "s not like 't%'",
    "s not like '%\\\\_%'",
    "s not like '_v' escape '!'",
    "s not like '%!%%' escape '!'",
    "not s like 't%'",
    "not s not like 't%'",
    "s not rlike '^[0-9]+$'",
    "s not regexp '(?i)^TV'",
    "i not in (1, 2, j)",
    "i not in (1, null)",
    "not i in (1, 2)",
    "not i not in (1, 2)",
    "i not between j and 5",
    "not i between j and 5",
    "i between -j and j and b",
    "i not between j and 5 or b",
    "b is not null",
    "b is not true",
    "not b is true",
    "not b is not false",
    "x is not distinct from y",
    "not s = u",
    "! b",
    "not b and i > j",
    "not not b",
]
"""Forms in which a parser has a negation in the node, around it, or both."""
OPTIONS = {
    "boolean": [
        *NEGATED,
        "s == u",
        "regexp_like(s, '^t')",
        "rlike(s, 'v$')",
        "(b = true) is not null",
        "b = (i in (1, 2))",
        "b = b is null",
        "b = b is not true",
        "(s like 't%') = b",
        "boolean(text_of_flag)",
        "i > j = b",
        "if(b, null, i > 1) is null",
        "case when s like 't%' then b when not b then true else i in (1, 2) end",
        "nvl(b, i not in (1, 2))",
        "t between v and v + interval 1 day 2 hours",
        "t not between v - interval 3 hours and v",
        "cast(s as boolean) is not true",
    ],
    "bigint": [
        "char_length(s)",
        "character_length(s)",
        "len(s)",
        "locate(u, s)",
        "position(u in s)",
        "position(u, s)",
        "date_diff(t, v)",
        "cast(i as int)",
        "cast(x as int)",
        "cast(text_of_number as int)",
        "int(text_of_number)",
        "ifnull(i, j)",
        "nvl(i, j)",
        "- i % j",
        "i - j - 3",
        "i * j % 7",
        "i % 7 * j",
        "i div 7 * j",
        "i - j % 5 + 2",
        "- - i",
        "-i - -j",
        "-(i)",
        "+i",
        "case when i = 1 then j end",
        "case b when true then i when false then j else 0 end",
        "cast(try_cast(i as string) as bigint)",
        "1L + i",
    ],
    "double": [
        "double(text_of_number)",
        "cast(text_of_double as double)",
        "cast(text_of_double as double) * 2",
        "log(abs(i) + 1D)",
        "round(-x)",
        "round(x / 10)",
        "-round(x * 0.1D)",
        "1 / i",
        "x / i / 2",
        "x - y - 1",
        "x * -y",
        "power(x, 2)",
        "- x * 2",
        "if(isnan(x), y, x)",
        "nullif(x, y)",
    ],
    "string": [
        "substr(s, 2)",
        "substr(s, 2, 1)",
        "substring(s from 2 for 2)",
        "substring(s from 2)",
        "trim(both from s)",
        "trim(leading from s)",
        "trim(trailing from s)",
        "trim(s || ' ')",
        "s || '-' || u",
        "concat(s)",
        "concat(s, null)",
        "concat_ws('-', s, null, u)",
        "concat_ws('-', s, u)",
        "string(i)",
        "ifnull(s, u)",
        "nvl(s, 'x')",
        "if(s not like 't%', s, u)",
        "case s when 'tv' then u when u then 'same' else s end",
        "'tab\\there'",
        "'a\\\\b'",
        '"double"',
        "coalesce(null, s)",
        "coalesce(s)",
        "regexp_extract(s, '([a-z])(.)', 1)",
        "get_json_object(json, '$[\\'a\\']')",
    ],
    "timestamp": [
        "t - interval 1 hour 30 minutes",
        "t + interval '2' days",
        "t - interval -3 hours",
        "interval 1 day + t - interval 1 second",
        "date_trunc('HOUR', t)",
        "current_timestamp",
        "least(t, v)",
    ],
    "date": [
        "date(t)",
        "date(text_of_date)",
        "dateadd(d, 3)",
        "date_add(d, -3)",
        "date_sub(d, -2)",
        "curdate()",
        "current_date",
        "date_add(t, cast(-j as int))",
    ],
    "interval": ["t - v - interval 1 hour", "2 * interval 3 minutes", "interval 1 hour * j"],
}
"""By type of the result: options of listed forms, and the other names of functions."""


def drawn(seed: int, number: int) -> list[tuple[str, str]]:
    """Return expressions with their types. Operands have no brackets, so that the order of operators counts."""
    draw = _Draw(random.Random(seed))
    kinds = {"boolean": draw.boolean, "bigint": draw.whole, "string": draw.text, "double": draw.real}
    return [(make(3), kind) for kind, make in list(kinds.items()) * number][:number]


class _Draw:
    def __init__(self, random_: random.Random) -> None:
        self._random = random_

    def boolean(self, depth: int) -> str:
        if not depth:
            return self._random.choice(["b", "i > j", "s = u", "true", "x < y", "b is null"])
        one = self._random.choice
        b, i, s = self.boolean, self.whole, self.text
        no = one(["", "not "])
        return one(
            [
                lambda: f"{b(depth - 1)} {one(['and', 'or'])} {no}{b(depth - 1)}",
                lambda: (
                    f"{no}{i(depth - 1)} {one(['=', '<>', '!=', '<', '<=', '>', '>=', '<=>', '=='])} {i(depth - 1)}"
                ),
                lambda: f"{s(depth - 1)} {no}like {one(['%', 't_', '%a%', '', 'a!_b'])!r} escape '!'",
                lambda: f"{s(depth - 1)} {no}like {one(['%', 't%', '_', '%v'])!r}",
                lambda: f"{s(depth - 1)} {no}rlike {one(['^t', '[0-9]', 'a|b'])!r}",
                lambda: f"{i(depth - 1)} {no}in ({i(0)}, {i(0)}, {one(['null', '3'])})",
                lambda: f"{i(depth - 1)} {no}between {i(0)} and {i(0)}",
                lambda: f"({b(depth - 1)}) is {no}{one(['null', 'true', 'false'])}",
                lambda: f"{no}({b(depth - 1)})",
                lambda: f"case when {b(depth - 1)} then {b(0)} else {no}{b(0)} end",
                lambda: f"if({b(depth - 1)}, {no}{b(0)}, {b(0)})",
                lambda: f"coalesce({b(depth - 1)}, {no}{b(0)})",
            ]
        )()

    def whole(self, depth: int) -> str:
        one = self._random.choice
        if not depth:
            return one(["i", "j", "2", "-3", "length(s)", "0"])
        i = self.whole
        return one(
            [
                lambda: f"{i(depth - 1)} {one(['+', '-', '%', 'div'])} {i(0)}",
                lambda: f"{i(0)} {one(['+', '-', '*'])} {i(depth - 1)}",
                lambda: f"- {i(0)} {one(['+', '-', '*', '%', 'div'])} {i(0)}",
                lambda: f"abs({i(depth - 1)})",
                lambda: f"case when {self.boolean(depth - 1)} then {i(0)} else {i(0)} end",
                lambda: f"case {i(0)} when {i(0)} then {i(0)} when 1 then {i(0)} end",
                lambda: f"{one(['greatest', 'least', 'coalesce', 'nvl', 'nullif'])}({i(depth - 1)}, {i(0)})",
                lambda: f"instr({self.text(depth - 1)}, u)",
            ]
        )()

    def real(self, depth: int) -> str:
        one = self._random.choice
        if not depth:
            return one(["x", "y", "0.5D", "cast(i as double)", "-x"])
        x = self.real
        return one(
            [
                lambda: f"{x(depth - 1)} {one(['+', '-', '/', '*'])} {x(0)}",
                lambda: f"{x(0)} {one(['+', '-', '*'])} {self.whole(depth - 1)}",
                lambda: f"round({x(depth - 1)})",
                lambda: f"{one(['greatest', 'least', 'coalesce'])}({x(depth - 1)}, {x(0)})",
                lambda: f"if({self.boolean(depth - 1)}, {x(0)}, {x(0)})",
            ]
        )()

    def text(self, depth: int) -> str:
        one = self._random.choice
        if not depth:
            return one(["s", "u", "'tv'", "'a'", "trim(s)"])
        s = self.text
        return one(
            [
                lambda: f"{s(depth - 1)} || {s(0)}",
                lambda: f"{one(['concat', 'coalesce', 'nvl', 'greatest'])}({s(depth - 1)}, {s(0)})",
                lambda: f"trim({one(['both', 'leading', 'trailing'])} from {s(depth - 1)})",
                lambda: f"substring({s(depth - 1)}, {one([1, 2, 3])}, {one([1, 2])})",
                lambda: f"case when {self.boolean(depth - 1)} then {s(0)} else {s(0)} end",
                lambda: f"replace({s(depth - 1)}, u, 'a')",
            ]
        )()


ASKED = [
    *((text, result) for cases in (CASES, OPTIONS) for result, texts in cases.items() for text in texts),
    *((f"not {text}", "boolean") for text in CASES["boolean"]),
    *((f"not ({text})", "boolean") for text in (*CASES["boolean"], *OPTIONS["boolean"])),
    *drawn(seed=7, number=200),
]
"""Expressions that are compared with Spark, with their types."""
NOT_READ = [
    *("i between symmetric 3 and 1", "i not between symmetric 3 and 1", "s ilike 't%'", "s not ilike 't%'", "s like any ('a', 'b')"),
    *("s not like all ('a', 'b')", "s like '!%' escape '!' escape '?'", "i in (select 1)", "i in unnest(array(1))", "s similar to 'a'"),
    *("like('t%', s)", "not like('t%', s)", "like(s, 't%')", "ilike(s, 't%')", "s glob 'a'", "s collate UTF8_LCASE = 'tv'"),
    *("date(t, 1) = d", "boolean(text_of_flag, 1)", "date_sub(d, 1, 2) = d", "datediff(t, v, 1) = 1", "datediff(day, v, t) = 1"),
    *("length(s, 1) = 2", "round(x, 1) = 2", "ceil(x, 1) = 2", "floor(x to day) = 1", "abs(i, j) = 1", "current_timestamp(3) > t"),
    *("to_date(text_of_date, 'yyyy') = d", "date_trunc('hour', t, 'UTC') = t", "date_trunc('fortnight', t) = t", "instr(s, u, 2) = 1"),
    *("instr(s, u, 1, 2) = 1", "locate('a', s, 2) = 1", "trim('x' from s) = 'a'", "trim(both 'x' from s) = 'a'", "ltrim('x', s) = 'a'"),
    *("trim(s, 'x') = 'a'", "substring(s, -1) = 'a'", "left(s, 1) = 'a'", "overlay(s placing 'a' from 1) = s", "replace(s, u) = s"),
    *("regexp_extract(s, 'a', 0, 1) = 'a'", "regexp_extract(s, 'a(b)', -1) = 'a'",
    "regexp_substr(s, 'a') = 'a'", "split_part(s, 'a', -1) = 'a'", "concat_ws('-') = ''"),
    *("coalesce() is null", "nvl(s, u, 'a') = 'a'", "nvl2(b, i, j) = 1", "if(b, i) = 1", "iif(b, i, j) = 1", "greatest(i) = 1"),
    *("cast(s as string format 'a') = s", "cast(s as varchar(3)) = s", "cast(x as float) = x", "cast(n as decimal(3, 1)) = n"),
    *("cast(i as smallint) = 1", "cast(s as string collate UTF8_LCASE) = s", "cast(s as timestamp_ntz) = t", "cast(s as array<int>) = s"),
    *("extract(year from t) = 2020", "count(distinct i) = 1", "sum(i) filter (where b) = 1", "first(i) ignore nulls = 1"),
    *("row_number() over (order by i) = 1", "max(i) over (partition by s) = 1", "percentile_cont(0.5) within group (order by i) = 1"),
    *("s = 't%' like u", "b = s like 't%'", "s not like 't%' = b", "b = i in (1, 2)", "x between 1 and 2 = b", "i > 1 = j > 1", "b = not b"),
    *("t + interval '1-2' year to month > v", "t + interval '1 2' day to hour > v", "interval i hours > interval 1 hour", "x::float = 1"),
    *("get_json_object(json, '$') = 'a'", "get_json_object(json, '$.a[0]') = 'a'", "get_json_object(json, '$.*') = 'a'"),
    *("json:a = 'x'", "i -> j", "s = ?", "s = :name", "s = @name", "s = ${name}", "i::bigint::string format 'a' = s", "b xor b", "i & j = 1"),
    *("i in (1, 2) or i not in ()", "position('a' in s, 2) = 1", "get_json_object(json, '$.a', 'b') = 'x'", "t at time zone 'UTC' > v"),
]  # fmt: skip
"""SQL with an option that is not listed: that it is dropped would be a wrong result."""
