"""`now()` in a rule is the start of the run, wherever it stands, and nothing else in the SQL is touched."""

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import JobError
from sessionlake.jobs.expire.rule import Rule, frozen

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
    ],
)
def test_frozen_replaces_calls_only(sql: str, expected: str | None) -> None:
    assert frozen(sql, NOW) == (sql if expected is None else expected)


def matching(spark: SparkSession, rule: Rule, now_us: int = NOW) -> list[int]:
    rows = spark.range(10).selectExpr(
        "cast(id as string) session_key", f"timestamp_micros({NOW} - id * 1000000) session_end", "id event_count"
    )
    return sorted(int(r.session_key) for r in rule.matching(rows, now_us).collect())


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
        "now/* */() > session_end",
        "session_end < timestamp 'now'",
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
        matching(spark, Rule(None, sql))
    assert "\n" not in str(caught.value)
