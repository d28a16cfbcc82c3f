"""Random SQL of what expressions may have: each listed form negated, with its options, and within others without brackets."""

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
