"""Rows of `sql --engine spark` have all values that a column may have."""

import datetime as dt
from decimal import Decimal

from pyspark.sql import SparkSession

from sessionlake.cli.layout import cell, plain
from sessionlake.cli.tables import run_sql

UTC = dt.UTC


def test_times_of_the_year_1_and_nested_values(spark: SparkSession) -> None:
    query = (
        "select timestamp '0001-01-01 00:00:00' t, timestamp '9999-12-31 23:59:59.999999' u, date '0001-01-01' d, map('a', 1) m, "
        "array(struct(1 as x)) s, 1.50 n, x'00ff' b, 1 as a, 2 as a, cast(null as string) o"
    )
    columns, rows = run_sql(spark, query, 5)
    assert columns == ["t", "u", "d", "m", "s", "n", "b", "a", "a", "o"]
    first, last = dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    assert rows == [(first, last, dt.date(1, 1, 1), {"a": 1}, [{"x": 1}], Decimal("1.50"), b"\x00\xff", 1, 2, None)]
    assert [cell(value) for value in rows[0][:2]] == ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"]
    assert plain(rows[0][0]) == "0001-01-01T00:00:00+00:00"
