"""Expressions of a config: what DuckDB makes of them is what Spark makes of them, and all else is refused in one line."""

import datetime as dt
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sqlglot.dialects import Spark
from sqlglot.expressions import Anonymous

from sessionlake.columnar.spark_sql import parse
from sessionlake.columnar.spark_sql.calls import CALLS, calls_in
from sessionlake.columnar.spark_sql.casts import _CASTS
from sessionlake.columnar.spark_sql.functions import BY_NAME, FUNCTIONS, RULES_BY_NAME, SHAPED
from sessionlake.columnar.spark_sql.nested import NESTED, NESTED_BY_NAME
from sessionlake.columnar.spark_sql.operators import OPERATORS
from sessionlake.columnar.spark_sql.typed import EXPRESSIONS
from sessionlake.errors import ConfigError
from tests.columnar.json_texts import NOT_PLAIN
from tests.columnar.nested_draws import NESTED_TYPES, nested_columns
from tests.columnar.sql_draws import ASKED, CASES, EVERYDAY, NEARLY, NOT_READ, TYPES

UTC = dt.UTC
CLOCK = dt.datetime(2020, 6, 15, 12, 34, 56, 789, UTC)


# What columns are drawn from: what Spark and others read in ways of their own.
WORDS = [
    "tv",
    "a",
    "",
    " a ",
    "TV",
    "12",
    "7",
    "a_b",
    "%",
    "a%b",
    "é",
    "ß",
    "naïve 😀",
    "e\u0301",
    "it's",
    "\ta",
    "v",
]
NUMBERS = [
    "1",
    " 12 ",
    "-7",
    "+3",
    "1.5",
    "1e3",
    ".5",
    "2.",
    "abc",
    "",
    "1_000",
    "0x10",
    "9" * 18,
    "9" * 20,
    "1d",
    "\t4\n",
    "NULL",
]
DOUBLES_IN_TEXTS = [
    *(
        "NaN",
        " NaN\n",
        "nan",
        "-NaN",
        "-nan",
        "+NaN",
        "NaNd",
        "Infinity",
        "+Infinity",
        "-Infinity",
        "inf",
        "-inf",
        "+INF",
    ),
    *(
        "infinity",
        "Infinityd",
        "-infinity",
        "1e400",
        "-1e400",
        "1e-400",
        "4.9e-324",
        "-0",
        "-0.0",
        "1.5f",
        "2D",
        "3dd",
        "3.e2",
    ),
    *("1.7976931348623157e308", "1e", ".", "+-1", "1 2", "infin", "9" * 400, "12345678.9"),
]
FLAGS = ["true", "F", " yes", "0", "1", "tr", "", "N", "on"]
DATES = [
    "2020-02-29",
    "2021-02-29",
    "2020-1-5",
    "2020-01-31 10:00:00",
    "2020-01-31T1",
    " 1999-12-31 ",
    "",
    "31.1.2020",
    "infinity",
    *(
        "2020",
        "2020-02",
        "+2020-01-01",
        "12020-01-01",
        "-0001-01-01",
        "2020-01-01T",
        "2020-01-01Z",
        "2020-01-01 at noon",
    ),
    *("\u00a02020-01-01", "2020-01-01\x00", "2020-13-01", "2020-00-10", "0000-02-29"),
]
TIMES = [
    "2020-02-29 01:02:03.4567",
    "2020-01-31T23:59:59Z",
    "2020-1-5 1:2:3",
    "2020-01-31 12:30",
    "2020-01-31",
    "2021-02-29 01:00:00",
    "epoch",
    "2020-01-01 25:00:00",
    "",
    *(
        f"2020-01-01 12:30:15{zone}"
        for zone in (
            *(
                " UTC",
                "UTC",
                " Z",
                "z",
                "+01:00",
                " +01:00",
                "+1:00",
                "+01",
                "+0100",
                "-05:30",
                "+18:00",
                "+18:01",
                " GMT",
            ),
            *(
                "GMT+1",
                " UTC+1",
                "UT",
                " utc",
                "[UTC]",
                "+01:00:30",
                "-00:00",
                "+1",
                "UTC+1:0",
                "+24:00",
                "+010030",
                " UTC-",
            ),
            *(
                ".5 UTC",
                ".1234567 UTC",
                ".1234567890Z",
                ".",
                ".-08:00",
                " Europe/Berlin",
                " EST",
                " PST",
                " Nowhere/Land",
                " UTC ",
            ),
        )
    ),
    *(
        "2020",
        "2020-02",
        "2020-01-01 23",
        "2020-01-01 12:30Z",
        "2020-01-01Z",
        "2020-01-01T",
        "2020-01-01 24:00:00",
        "+2020-01-01",
    ),
    *(
        "2020-01-01 23:59:60",
        "2020-01-01 12:30:",
        "2020-01-01  12:30:00",
        "2020-01-01t12:30:00",
        "12020-01-01",
        "-0001-01-01 01:00:00",
    ),
    *("2020-03-29 02:30:00 Europe/Berlin", "2020-10-25 02:30:00 Europe/Berlin", "1500-01-01 12:00:00 America/New_York"),
    *("\t2020-01-01 00:00:00 UTC\n", "2020-02-30 00:00:00 UTC", "294247-01-10 04:00:54.775808", "2020-01-01 012:30:00"),
]
DOCUMENTS = [
    '{"a": "x", "b": {"c": 1}}',
    '{"a": null}',
    '{"a": true, "b": {"c": "é"}}',
    '{"b": {}}',
    "[]",
    "{bad",
    "",
    '{"a": [1,2]}',
    '{"a": {"k":"v"}}',
    '{"a": 12}',
    '{"b": 5}',
    *(
        f'{{"a": {number}, "b": {{"c": {number}}}}}'
        for number in (
            *(
                "12345678.9",
                "0.0009",
                "0.001",
                "0.00099999",
                "1e400",
                "-1e400",
                "NaN",
                "Infinity",
                "-inf",
                "1.50",
                "100.0",
                "1E5",
            ),
            *(
                "9999999.5",
                "10000000.0",
                "1e7",
                "-12345678.9",
                "-0",
                "-0.0",
                "0.0",
                "123456789012345678901234567890",
                "01",
                "1e22",
            ),
            *(
                "18446744073709551616",
                "9223372036854775808",
                "1.7976931348623157e308",
                "1e-5",
                "-1.25e-7",
                "100000000.0",
                "0e5",
            ),
            *("1.", ".5", "+1", "1e", "123456789.125", "1.0E10", "2.5E-10", "1e15", "1e16", "1.5e16"),
        )
    ),
    '{"a": 1,}',
    '{"a": "x, ]"}',
    '{"a": "NaN", "b": {"c": "inf, }"}}',
    '{"a": "\\"NaN", "c": nan}',
    '{"a": 2, "b": [1, ]}',
    *NOT_PLAIN,
]
LETTERS = [
    *(
        "Straße",
        "STRASSE",
        "ΟΔΟΣ",
        "Σ",
        "ΑΣ.",
        "ΑΣ ΣΑ",
        "İstanbul",
        "\u0131I",
        "ﬁx ﬃ",
        "ŉa",
        "ǆ ǅ",
        "on  TV\tat 8",
        "o'neill",
        "naïve 😀 é",
        "e\u0301a",
    ),
    *(
        "ᾳ ᾼ",
        "\ua7b3 \uab53",
        "a\u0345Σ",
        "Σ\u00ad",
        "",
        "plain ascii",
        "\u1c89 \ua7cb",
        "ÀÉ x",
        "mac\u0345Σa",
        " b",
        "B ",
        "\u00a0a",
        "a-b c",
    ),
]
ZONES = [
    *(
        "Europe/Berlin",
        "UTC",
        "Z",
        "+05:30",
        "-8",
        "America/New_York",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
    ),
    *("Pacific/Apia", "EST", "PST", "GMT+2", "Africa/Casablanca"),
]
PATTERNED = [
    *(
        "2020-02-29 01:02:03",
        "2021-02-29 01:02:03",
        "2020-2-9 01:02:03",
        "2020-01-31 24:00:00",
        "+12020-01-31 00:00:00",
        "-0044-03-15 12:00:00",
    ),
    *(
        "03/Feb/2020:01:02:03 +0100",
        "31/dec/1999:23:59:59 -0930",
        "03/Feb/2020:01:02:03 +01:00",
        "30/Feb/2020:01:02:03 +0000",
        "3/Feb/2020:01:02:03 +0000",
    ),
    *(
        "20200203040506",
        "20200230040506",
        "120200203040506",
        "2020020304050",
        "1/2/2020 3:04:05 PM",
        "12/31/1999 12:00:00 am",
        "1/2/2020 13:04:05 PM",
    ),
    *(
        "2020-02-03T01:02:03.123Z",
        "2020-02-03t01:02:03.1+05:30",
        "2020-02-03T01:02:03.1234Z",
        "2020-02-03T01:02:03.000+19:00",
        "2020-02-03T01:02:03Z",
    ),
    *(
        "3 February 20",
        "29 feb 21",
        "1 AUGUST 99",
        "2020-1-2",
        "-5-1-2",
        "0-01-01",
        "2020-13-01",
        "12:30",
        "23:59",
        "24:00",
        "7:30",
        "01:02:03",
    ),
    *(
        "2020-02-03 01:02:03+01",
        "2020-02-03 01:02:03-0930",
        "2020-02-03 01:02:03z",
        "02292020",
        "13012020",
        "2020-02-03",
        " 2020-02-03",
        "",
        "x",
    ),
    *(
        "2020-12-31 23:59:60",
        "\uff12\uff10\uff12\uff10-01-01 00:00:00",
        "99999999999-01-01 00:00:00",
        "+20200-01-01 00:00:00",
        "-0000-01-01 00:00:00",
        "0000-01-01 00:00:00",
    ),
]
INTEGERS = [0, 1, 2, 5, -1, -7, 100, 86_400, -1_000_003]
DOUBLES = [0.0, -0.0, 0.1, 1.5, -2.0, 1e10, float("nan"), float("inf"), 3.0]
MOMENTS = [
    0,
    -1,
    1,
    -500_000,
    1_580_473_800_500_000,
    1_582_934_400_000_000,
    1_577_836_799_999_999,
    951_782_400_000_001,
]
DAYS = [0, -1, 18_321, 18_292, 18_293, 10_956]


def _columns(rows: int, seed: int) -> dict[str, pa.Array]:
    random_ = random.Random(seed)

    def any_of(values: list[Any]) -> list[Any]:
        return [None if random_.random() < 0.1 else random_.choice(values) for _ in range(rows)]

    values = {
        "b": any_of([True, False]),
        "i": any_of([*INTEGERS, *range(-30, 30)]),
        "j": any_of([0, 1, 2, -3, 40]),
        "x": any_of(DOUBLES),
        "y": any_of(DOUBLES),
        "s": any_of(WORDS),
        "u": any_of(WORDS),
        "t": any_of([*MOMENTS, *(random_.randrange(-(10**14), 2 * 10**15) for _ in range(rows))]),
        "v": any_of(MOMENTS),
        "d": any_of([*DAYS, *range(18_000, 18_400)]),
        "text_of_number": any_of(NUMBERS),
        "text_of_double": any_of(DOUBLES_IN_TEXTS),
        "text_of_date": any_of(DATES),
        "text_of_time": any_of(TIMES),
        "text_of_flag": any_of(FLAGS),
        "json": any_of(DOCUMENTS),
        "k": any_of([0, 1, 7, -3, 2**31 - 1]),
        "w": any_of(LETTERS),
        "zone": any_of(ZONES),
        "text_of_pattern": any_of(PATTERNED),
    }
    columns = {
        name: pa.array(column).cast(TYPES[name]) for name, column in values.items() if name not in ("t", "v", "d")
    }
    columns |= {name: pa.array(values[name], pa.int64()).cast(TYPES[name]) for name in ("t", "v")}
    columns["d"] = pa.array(values["d"], pa.int32()).cast(pa.date32())
    columns["n"] = pa.array(any_of([0, 1, 125, -250, 12_345]), pa.int64()).cast(pa.float64())
    columns["n"] = pa.compute.divide(columns["n"], 100.0).cast(TYPES["n"])
    units = any_of(
        [0, 1, -5, 12_345, 99_999_999_999_999, -100_000, *(random_.randrange(-(10**7), 10**7) for _ in range(rows))]
    )
    columns["m"] = pa.array([None if unit is None else Decimal(unit).scaleb(-4) for unit in units], TYPES["m"])
    return {**columns, **nested_columns(rows, random_)}


def _ours(text: str, result: Any, columns: dict[str, pa.Array]) -> list[Any]:
    clock_us = int(CLOCK.timestamp()) * 1_000_000 + CLOCK.microsecond
    found = parse("test", text).typed(TYPES, result).evaluate(columns, len(columns["b"]), clock_us)
    if result == "timestamp":
        return found.cast(pa.int64()).to_pylist()
    return (found.cast(pa.int32()) if result == "date" else found).to_pylist()


def _sparks(text: str, result: str) -> str:
    """Return Spark's own SQL: the clock is a moment, and what fails is null."""
    moment = f"timestamp '{CLOCK:%Y-%m-%d %H:%M:%S.%f}'"
    text = re.sub(r"now\(\)|\bcurrent_timestamp\b(\(\))?", moment, text)
    text = re.sub(r"\bcur(rent_)?date\b(\(\))?", f"to_date({moment})", text)
    text = re.sub(r"\b(int|double|boolean|string|date)\((\w+)\)", r"cast(\2 as \1)", text)
    text = re.sub(r"\b(try_)?cast\(", "try_cast(", text)
    wrapped = {
        "timestamp": "unix_micros(cast({} as timestamp))",
        "date": "unix_date({})",
        "interval": "unix_micros(timestamp_micros(0) + ({}))",
    }
    return wrapped.get(result, "{}").format(text)


def test_duckdb_says_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    columns = _columns(2000, 7)
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    # As if ANSI mode were on: otherwise the size of null is -1.
    spark.conf.set("spark.sql.legacy.sizeOfNull", "false")
    try:
        rows = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
        theirs: list[list[Any]] = []
        for part in range(0, len(ASKED), 100):  # Spark's time grows faster than the number of columns.
            asked = (f"{_sparks(*one)} as c{i}" for i, one in enumerate(ASKED[part : part + 100]))
            theirs += [column.to_pylist() for column in rows.selectExpr(*asked).toArrow().columns]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        spark.conf.unset("spark.sql.legacy.sizeOfNull")
    wrong: list[str] = []
    for (text, result), spark_has in zip(ASKED, theirs, strict=True):
        ours = _ours(text, result, columns)
        same = _nearly if text in NEARLY or "log(" in text else _same
        differ = [(row, a, b) for row, (a, b) in enumerate(zip(ours, spark_has, strict=True)) if not same(a, b)]
        if differ:
            row, a, b = differ[0]
            wrong.append(
                f"{text}: {a!r}, of Spark {b!r}, at { {n: columns[n][row].as_py() for n in parse('', text).columns} }"
            )
    assert not wrong


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return [*a] == [*b] and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isnan(a) and np.isnan(b)) or (a == b and bool(np.signbit(a) == np.signbit(b)))
    return bool(a == b) and (a is None) == (b is None)


def _nearly(a: Any, b: Any) -> bool:
    return _same(a, b) or (a is not None and b is not None and bool(np.isclose(a, b, rtol=1e-15, atol=0)))


def test_each_listed_function_is_compared() -> None:
    trees = [parse("", text).tree for text, _ in ASKED]
    nodes = [node for tree in trees for node in tree.walk()]
    assert {type(node) for node in nodes} >= {*OPERATORS, *SHAPED, *FUNCTIONS, *NESTED}
    assert {node.name.lower() for node in nodes if type(node).__name__ == "Anonymous"} == {
        *BY_NAME,
        *RULES_BY_NAME,
        *NESTED_BY_NAME,
    }


def test_each_listed_name_is_compared_with_each_number_of_arguments() -> None:
    called = {(call.name, call.arguments) for text, _ in ASKED for call in calls_in(Spark().tokenize(text))}
    for name, (least, most) in CALLS.items():
        compared = {number for called_name, number in called if called_name == name}
        # The names and values of a struct are pairs.
        assert compared >= {least, max(least, min(most, 4 if name == "named_struct" else 3))}, name


def test_each_known_argument_is_compared() -> None:
    given = {
        (type(node), name)
        for text, _ in ASKED
        for node in parse("", text).tree.walk()
        for name, value in node.args.items()
        if value or value is False
    }
    assert {(node, name) for node, names in EXPRESSIONS.items() for name in names} - given <= {(Anonymous, "this")}


def test_each_listed_cast_is_compared() -> None:
    texts = " ".join(text for cases in (CASES, EVERYDAY) for texts in cases.values() for text in texts)
    names = {"bigint": "i", "double": "x", "boolean": "b", "timestamp": "t", "date": "d", "decimal": "n"}
    of_text = {"bigint": "number", "double": "number", "boolean": "flag", "date": "date", "timestamp": "time"}
    for before, after in _CASTS:
        column = f"text_of_{of_text[after]}" if before == "string" else names[before]
        assert f"cast({column} as {after})" in texts


@pytest.mark.parametrize(
    ("text", "result", "told"),
    [
        ("rand() > 0", "boolean", "'rand' is not listed for expressions; docs/expressions.md lists all of them"),
        ("my_udf(i)", "boolean", "'my_udf' is not listed for expressions; docs/expressions.md lists all of them"),
        ("uuid()", "string", "'uuid' is not listed for expressions; docs/expressions.md lists all of them"),
        ("sum(i)", "bigint", "'sum' is not listed for expressions; docs/expressions.md lists all of them"),
        (
            "i in (select 1)",
            "boolean",
            "'(SELECT 1)' is not listed for expressions; docs/expressions.md lists all of them",
        ),
        (
            "a.b",
            "boolean",
            "'a.b' is no column; write one of b, i, j, x, y, n, s, u, t, v, d, text_of_number, text_of_double, text_of_date, text_of_time, text_of_flag, json, m, k, w, zone, text_of_pattern",
        ),
        (
            "lenght(s) > 3",
            "boolean",
            "'lenght' is not listed for expressions (did you mean 'length'?); docs/expressions.md lists all of them",
        ),
        ("i", "boolean", "'i' is of type bigint, and must be of type boolean"),
        ("s = 1", "boolean", "'s = 1' has bigint and string side by side; cast one of them"),
        ("t > '2020-01-01'", "boolean", "\"t > '2020-01-01'\" has string and timestamp side by side; cast one of them"),
        ("i + 1.5", "double", "'i + 1.5' is of type decimal, and must be of type double"),
        (
            "n * length(s) > 1",
            "boolean",
            "'LENGTH(s)' is a bigint beside a decimal, whose digits are not known; cast it, as in cast(x as decimal(10, 2))",
        ),
        (
            "date_format(t, 'ww') = s",
            "boolean",
            "\"DATE_FORMAT(t, 'ww')\" has 'ww', which is not listed; write some of yyyy, y, yy, Q, M, MM, MMM, MMMM, d, dd, D, DDD, E, EE, EEE, EEEE, a, SSS, SSSSSS, H, HH, h, hh, m, mm, s, ss, Z, X, XX, XXX, x, xx, xxx, S, SS, SSSS, SSSSS",
        ),
        (
            "from_utc_timestamp(t, 'Berlin')",
            "timestamp",
            "\"'Berlin'\" is no time zone; write one as in 'Europe/Berlin', or '+01:00'",
        ),
        ("i and b", "boolean", "'i' is of type bigint, where boolean is needed; compare it"),
        ("length(i)", "bigint", "'LENGTH(i)' is called with a bigint; cast it to string"),
        (
            "timestamp 'today' > t",
            "boolean",
            "\"CAST('today' AS TIMESTAMP)\" is no timestamp; write it as in '2024-01-31' or '2024-01-31 12:00:00', in UTC",
        ),
        (
            "d + interval 1 hour",
            "timestamp",
            "\"d + INTERVAL '1' HOUR\" has a date; write date_add, or cast it to timestamp",
        ),
        (
            "substring(s, -1, 1)",
            "string",
            "'SUBSTRING(s, -1, 1)' is not listed; write substring of a text, from 1 or more on, by numbers",
        ),
        (
            "cast(x as string)",
            "string",
            "'CAST(x AS STRING)' casts a double to string, which is not listed; docs/expressions.md lists all of them",
        ),
        ("s like u", "boolean", "'s LIKE u' is not listed; write a text, like, and a pattern in quotes"),
        (
            "interval i hours",
            "interval",
            "'INTERVAL i HOURS' is not listed; write a number and a unit, or multiply: n * interval 1 hour",
        ),
    ],
)
def test_what_is_not_listed_is_refused_in_one_line(text: str, result: Any, told: str) -> None:
    types = {name: type_ for name, type_ in TYPES.items() if name not in NESTED_TYPES}
    with pytest.raises(ConfigError) as raised:
        parse("session.gap_by", text).typed(types, result)
    assert re.sub(r" \(at character \d+: .*\)$", "", str(raised.value)) == f"session.gap_by: {told}"


@pytest.mark.parametrize("text", NOT_READ)
def test_an_option_that_is_not_listed_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^event.where: [^\n]*$"):
        parse("event.where", text).typed(TYPES, "boolean")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        # The parser has places of functions, names and values.
        ("i > 1 and rand() > 0", "11: 'rand() > 0'"),
        ("i > 1 and my_udf(i)", "11: 'my_udf(i)'"),
        ("b and nothing > 1", "7: 'nothing > 1'"),
        ("b and 1 + 99999999999999999999 > i", "11: '99999999999999999999 > i'"),
        # What has none begins with the first part of it that has one.
        ("b and s = 1", "7: 's = 1'"),
        ("b and 2 between s and 1", "7: '2 between s and 1'"),
        ("b and case when i then b end", "17: 'i then b end'"),
        ("b and cast(x as string) = s", "12: 'x as string) = s'"),
        # Where no part has one, what is around it.
        ("b and t > interval 1.3 months", "7: 't > interval 1.3 months'"),
        ("b\n  and s = 1", "9: 's = 1'"),
        ("b and `a column` > 1", "7: '`a column` > 1'"),
        (f"b and s = i + {'1' * 60}", f"15: '{'1' * 40}...'"),
        # Errors of the parser.
        ("i > 1 and", "7: 'and'"),
        ("b and\n(i > 1", "12: '1'"),
        ("b and s = 'x' or s = 'open", "22: \"'open\""),
        ("b and s = 'it''s'", "15: \"'s'\""),
    ],
)  # fmt: skip
def test_an_error_has_its_place_in_the_text(text: str, place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse("event.where", text).typed({**TYPES, "b": pa.bool_(), "a column": pa.string()}, "boolean")
    assert str(raised.value).endswith(f" (at character {place})")


def test_an_error_of_the_parser_names_no_class() -> None:
    told = r"^event.where: 'i and' is no expression of Spark's SQL \(an operand or an argument is missing\); correct it \(at"
    with pytest.raises(ConfigError, match=told):
        parse("event.where", "i and")


@pytest.mark.parametrize(
    "text", ["", "i >", "'open", "i = 1; j = 2", "select 1", "i = ?", "s rlike '(?=a)'", "s = 'it''s'", "(" * 500]
)
def test_what_is_no_expression_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^session.gap_by: [^\n]*$"):
        parse("session.gap_by", text).typed(TYPES, "boolean")


@pytest.mark.parametrize(
    "text",
    [
        " and ".join(["s = 'x'"] * 5000),
        "+".join(["1"] * 5000) + " > 0",
        "not " * 5000 + "true",
        "(" * 5000 + "true" + ")" * 5000,
    ],
    ids=["and", "+", "not", "("],
)
def test_thousands_of_operators_are_refused_in_one_short_line(text: str) -> None:
    told = r"^ttl\.where: the SQL of [\d,]+ characters that begins with .{40,80} is nested too deeply; [^\n]*$"
    with pytest.raises(ConfigError, match=told):
        parse("ttl.where", text).typed(TYPES, "boolean")


def test_an_unknown_column_is_refused_by_its_name() -> None:
    with pytest.raises(
        ConfigError, match=r"^ttl.where: 'z' is no column; write one of i, s \(at character 1: 'z > 1'\)$"
    ):
        parse("ttl.where", "z > 1").typed({"i": pa.int64(), "s": pa.string()}, "boolean")


def test_a_row_at_which_it_fails_is_null_and_the_others_are_not() -> None:
    found = parse("x", "i * 9223372036854775807").typed({"i": pa.int64()}, "bigint")
    assert found.evaluate({"i": pa.array([1, 2, None, -1])}, 4).to_pylist() == [2**63 - 1, None, None, -(2**63) + 1]


def test_columns_are_named_in_the_order_of_their_first_use_and_no_clock_is_none() -> None:
    parsed = parse("x", "coalesce(s, u) = s and b")
    assert parsed.columns == ("s", "u", "b")
    assert not parsed.typed(TYPES, "boolean").uses_clock
    assert parse("x", "now() > t").typed(TYPES, "boolean").uses_clock


def test_no_rows_and_no_columns() -> None:
    found = parse("x", "interval 1 minute").typed({}, "interval")
    assert found.evaluate({}, 0).type == pa.int64()
    assert found.evaluate({}, 3).to_pylist() == [60_000_000] * 3


def test_chunks_and_dictionaries_are_read_as_they_are() -> None:
    column = pa.chunked_array([pa.array(["tv", None]).dictionary_encode(), pa.array(["a"]).dictionary_encode()])
    found = parse("x", "s = 'tv'").typed({"s": pa.string()}, "boolean")
    assert found.evaluate({"s": column}, 3).to_pylist() == [True, None, False]
