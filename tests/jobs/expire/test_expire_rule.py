"""`now()` in a rule is the start of the run, wherever it stands, and nothing else in the SQL is touched."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionlake.errors import JobError
from sessionlake.jobs.expire.rule import Rule, frozen
from sessionlake.operators.sessions.changelog import SESSIONS

NOW = 1_700_000_000_123_456
MOMENT = f"timestamp_micros({NOW}L)"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("session_end < now() - interval 90 days", f"session_end < {MOMENT} - interval 90 days"),
        ("NOW ( ) > Current_Timestamp", f"{MOMENT} > {MOMENT}"),
        ("current_timestamp()-current_date", f"{MOMENT}-to_date({MOMENT})"),
        ("curdate() = current_date()", f"to_date({MOMENT}) = to_date({MOMENT})"),
        ("unix_timestamp() > unix_timestamp(t)", f"unix_seconds({MOMENT}) > unix_timestamp(t)"),
        ("page = 'now()' and x = \"now()\"", None),
        (r"page = 'it\'s now()' and `now()` = 1", None),
        ("page = 'it''s' and x = 'now()'", None),
        (r"page = r'\' and t < now() and x = 'y'", rf"page = r'\' and t < {MOMENT} and x = 'y'"),
        ("a -- now()\n and b /* now() */", None),
        ("t.current_date = 1 and my_now() and nowhere and current_dates", None),
        ("é > now/* at\nonce */( )", f"é > {MOMENT}"),
        ("a /* /* it's */ now() */ and now() > b", f"a /* /* it's */ now() */ and {MOMENT} > b"),
        ("t /* of */ . current_date = 1.5BD and `a``b now()` <=> X'1F'", None),
        ("a in (select date nowhere from days)", None),
        ("current_timestamp", MOMENT),
    ],
)
def test_frozen_replaces_calls_only(sql: str, expected: str | None) -> None:
    assert frozen(sql, NOW) == (sql if expected is None else expected)


def matching(spark: SparkSession, rule: Rule, now_us: int = NOW, tables: Sequence[str] = ()) -> list[int]:
    return sorted(int(r.session_key) for r in rule.matching(rows_of(spark), now_us, tables, SESSIONS).collect())


def rows_of(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr(
        "cast(id as string) session_key", f"timestamp_micros({NOW} - id * 1000000) session_end", "id event_count"
    )


def test_ttl_is_strict(spark: SparkSession) -> None:
    assert matching(spark, Rule(4_000_000, None)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "sql",
    [
        "session_end < now() - interval 4 seconds",
        "unix_seconds(session_end) < unix_timestamp() - 4",
        "session_end < (select max(now()) - interval 4 seconds)",
        "exists (select 1 where session.session_end < current_timestamp() - interval 4 seconds) -- a comment",
    ],
)
def test_clock_of_sql_is_the_run_s(spark: SparkSession, sql: str) -> None:
    assert matching(spark, Rule(None, sql)) == [5, 6, 7, 8, 9]
    assert matching(spark, Rule(None, sql), NOW - 2_000_000) == [7, 8, 9]


def test_either_of_ttl_and_where_is_enough(spark: SparkSession) -> None:
    assert matching(spark, Rule(7_000_000, "session_key in (select string(3)) -- or so")) == [3, 8, 9]


@pytest.mark.parametrize(
    "sql",
    [
        "identifier('now')() > session_end",
        "session_end < timestamp 'now'",
        "session_end < timestamp_ntz /* */ r' Now UTC'",
        "session_end < cast('today UTC' as timestamp)",
        "session_end < cast('yesterday' as timestamp)",
        "to_date(session_end) < DATE 'today'",
        "rand(1) < 0.5",
        "session_key in (select uuid())",
        "session_end > (select max(at) from clock)",
    ],
)
def test_what_differs_from_attempt_to_attempt_is_refused(spark: SparkSession, sql: str) -> None:
    spark.sql("select current_timestamp() at").createOrReplaceTempView("clock")
    with pytest.raises(JobError, match="would differ from attempt to attempt") as caught:
        matching(spark, Rule(None, sql), tables=["clock"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sql", ["session_key = \n'now()", "`session_key = now()", "true /* now()", "x = X'z'"])
def test_what_has_no_end_is_refused(spark: SparkSession, sql: str) -> None:
    with pytest.raises(
        JobError, match=r"^where: .* without an end, or an X'...' that is no number; correct the SQL"
    ) as caught:
        matching(spark, Rule(None, sql))
    assert "\n" not in str(caught.value)


@pytest.fixture
def views(spark: SparkSession, tmp_path: Path) -> Path:
    """A table that a rule may read, and more that it may not: a view, a global one of the same name, files, a function."""
    values = spark.createDataFrame([("1",)], "k string")
    values.createOrReplaceTempView("Flagged")
    values.createOrReplaceTempView("other")
    values.createOrReplaceGlobalTempView("flagged")
    spark.udf.register("of_a_user", lambda: True, "boolean")
    (tmp_path / "secret").write_text("hunter2\n")
    return tmp_path / "secret"


@pytest.mark.parametrize(
    "sql",
    [
        "session_key in (select k from flagged)",
        "exists (with a as (select * from flagged) select 1 from a where k = session.session_key)",
        "session_key in (select * from values ('1'), ('7'))",
        "event_count = (select max(e) from (select explode(array(0, 1)) e))",
    ],
)
def test_a_rule_reads_the_row_and_the_tables_that_are_named(spark: SparkSession, views: Path, sql: str) -> None:
    assert views.exists()
    assert 1 in matching(spark, Rule(None, sql), tables=["flagged"])


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("raise_error((select first(value) from text.`{file}`)) is null", "`text`"),
        ("exists (select 1 from csv.`{file}` where _c0 like 'h%')", "`csv`"),
        ("exists (select 1 from delta.`{file}`)", "`delta`"),
        ("exists (select 1 from parquet.`{file}`)", "`parquet`"),
        ("exists (select 1 from other)", "it reads other; it may read the session's row and the tables of [expire] only (flagged)"),
        ("exists (with flagged as (select * from other) select 1 from flagged)", "it reads other"),
        ("exists (select 1 from global_temp.flagged)", "it reads global_temp.flagged"),
        ("exists (select * from identifier('other'))", "it reads other"),
        ("event_count > (select max(x) from (select (select count(*) from other) x))", "it reads other"),
        ("exists (select 1 from range(3))", "it reads Range"),
        ("of_a_user()", "pythonudf is not allowed: it may call other code"),
        ("from_xml('<a/>', 'a int', map('rowValidationXSDPath', '{file}')) is null", "from_xml is not allowed: it may call other code, open"),
        ("try_reflect('java.lang.System', 'getenv', 'HOME') = 'x'", "try_reflect is not allowed"),
        ("xpath_string('<!DOCTYPE a SYSTEM \"file://{file}\"><a>x</a>', '/a') = 'x'", "xpath_string is not allowed"),
        ("left(element_at(xpath('<a/>', '/a'), 1), 1) = 'x'", "xpath is not allowed"),
        ("exists (select 1 from flagged where xpath_boolean(k, '/a'))", "xpath_boolean is not allowed"),
        ("to_xml(struct(session_key)) = 'x'", "to_xml is not allowed"),
        ("current_user() = 'x'", "current_user is not allowed"),
    ],
)  # fmt: skip
def test_a_rule_reads_nothing_else(spark: SparkSession, views: Path, sql: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        matching(spark, Rule(None, sql.format(file=views)), tables=["flagged"])
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "hunter2" not in str(caught.value)
    assert spark.conf.get("spark.sql.runSQLOnFiles") == "true"


_REAL = """
session_end < now() - interval 90 days and event_count <= 2 or session_key ilike 'bot%'
session_key like any ('a%', 'b%') or session_key rlike '^[0-9]$' and not session_key in ('11', '12')
date_trunc('day', session_end) < current_date() - interval '1' month or hour(session_end) between 25 and 26
datediff(current_date(), to_date(session_end)) > 30 or months_between(now(), session_end) > 1
session_end + make_dt_interval(event_count) < now() or unix_millis(session_end) % 7 = 8
from_utc_timestamp(session_end, 'Europe/Berlin') < timestamp '2020-01-01' or date_format(session_end, 'E') = 'x'
ceil(event_count / 2.5) + floor(1.5) + round(event_count, 1) + pmod(event_count, 3) > 100 or greatest(1, 2) = 3
try_cast(session_key as int) is null or coalesce(nullif(session_key, ''), 'x') = 'x'
left(trim(lower(session_key)), 1) = 'x' or contains(session_key, 'x') or substring_index(session_key, '.', 1) = 'x'
split(session_key, '-')[0] = 'x' or regexp_extract(session_key, '([a-z])', 1) = 'x' or lpad(session_key, 3, '0') = 'x'
sha2(session_key, 256) = 'x' or md5(session_key) = 'x' or xxhash64(session_key) = 1 or base64(encode(session_key, 'utf-8')) = ''
get_json_object(session_key, '$.a') = 'x' or from_json('{"a": 1}', 'a int').a = 2 or to_json(struct(session_key)) = 'x'
exists(array(1, 2), x -> x > event_count + 100) or array_contains(array(1, 2), 3) or size(sequence(1, 3)) = 4
aggregate(transform(array(1, 2), x -> x * 2), 0, (a, x) -> a + x) = 7 or map('a', 1)['a'] = 2 or map_keys(map('a', 1))[0] = 'b'
element_at(filter(array(session_key), x -> x = '3'), 1) = 'x' or array_join(array('a'), ',') = 'x' or flatten(array(array(1)))[0] = 2
url_decode(url_encode(session_key)) = 'x' or parse_url('http://h/p?q=1', 'QUERY', 'q') = '2'
try_to_timestamp(session_key) is not null and false or try_divide(1, 0) is not null or width_bucket(1, 0, 5, 5) = 9
parse_json('{"a": 1}') is null or variant_get(parse_json('{"a": 1}'), '$.a', 'int') = 2 or schema_of_json('{"a": 1}') = 'x'
event_count > (select max(n) + 100 from (select count(*) n, avg(length(k)) a from flagged group by k having count(*) > 0))
session_key in (select k from (select k, row_number() over (partition by k order by k) n from flagged) where n > 5)
(select percentile(length(k), 0.5) + count(distinct k) filter (where k > '') from flagged) > 100
(select array_size(collect_list(k)) + max_by(length(k), k) + stddev(length(k)) from flagged) > 100
"""


def test_rules_as_people_write_them_are_taken(spark: SparkSession, views: Path) -> None:
    assert views.exists()
    refused = {}
    for sql in _REAL.strip().splitlines():
        try:
            Rule(None, sql).matching(rows_of(spark), NOW, ["flagged"], SESSIONS)
        except JobError as error:
            refused[sql] = str(error)
    assert refused == {}
