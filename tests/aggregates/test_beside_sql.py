"""Functions of aggregates beside DuckDB and Spark, in one query each, over random rows with nulls, ties and small groups."""

import math
import shutil
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.aggregates.random_rows import TYPES, Row, values_of
from tests.support import make_config, write_rows

SAME = {
    "count_if(b)": "count_if(b)",
    "bool_and(b)": "bool_and(b)",
    "bool_or(b)": "bool_or(b)",
    "bit_and(i)": "bit_and(i)",
    "bit_or(i)": "bit_or(i)",
    "bit_xor(i)": "bit_xor(i)",
    "stddev(d)": "stddev_samp(d)",
    "stddev_pop(d)": "stddev_pop(d)",
    "variance(i)": "var_samp(i)",
    "var_pop(d)": "var_pop(d)",
    "covar_samp(d, i)": "covar_samp(d, i)",
    "covar_pop(d, i)": "covar_pop(d, i)",
    "corr(d, i)": "corr(d, i)",
    "regr_slope(d, i)": "regr_slope(d, i)",
    "regr_intercept(d, i)": "regr_intercept(d, i)",
    "max_by(s, d)": "max_by(s, d)",
    "min_by(s, d)": "min_by(s, d)",
    "sum(d)": "sum(d)",
    "count_distinct(s)": "count(distinct s)",
    "collect_set(s, 100)": "array_sort(array_distinct(array_agg(s)))",
    "array_agg(i, 1000)": "array_sort(array_agg(i))",
}
SPARK = {**SAME, "skewness(d)": "skewness(d)", "kurtosis(d)": "kurtosis(d)", "median(d)": "percentile(d, 0.5)"}
SPARK |= {"mode(i)": "mode(i, true)", "approx_count_distinct(i, 0.02)": "count(distinct i)"}
DUCK = {
    **SAME,
    "max_by(s, d)": "arg_max_null(s, d)",
    "min_by(s, d)": "arg_min_null(s, d)",
    "kurtosis(d)": "case when var_pop(d) > 0 then kurtosis_pop(d) end",
    "array_agg(i, 1000)": "coalesce(list_sort(list(i) filter (i is not null)), [])",
    "collect_set(s, 100)": "coalesce(list_sort(list(distinct s) filter (s is not null)), [])",
}


def rows_of(random: Random) -> list[Row]:
    """Return groups of 0 to 40 numbers, one of them of equal ones. No two d of a group are the same, so nothing ties."""
    rows = []
    for group in range(60):
        constant = group % 5 == 0
        numbers = random.sample(range(-4000, 4000), group % 41 + 1)
        for n in numbers:
            some: list[Any] = [
                7 if constant else random.randrange(-9, 9),
                n / 8,
                random.choice("abcä"),
                random.random() < 0.8,
            ]
            rows.append(Row(group, n, None, *(None if random.random() < 0.15 else value for value in some)))
    return rows


ROWS = rows_of(Random(11))
COLUMNS = {name: pa.array([getattr(row, name) for row in ROWS], type_) for name, type_ in TYPES.items()}
TABLE = pa.table({"g": pa.array([row.group for row in ROWS], pa.int64()), **COLUMNS})


def compare(texts: dict[str, str], found: dict[int, dict[str, Any]]) -> None:
    for place, text in enumerate(texts):
        for group, value in values_of(text, ROWS, Random(3)).items():
            wanted = found[group][f"a{place}"]
            if isinstance(value, list):
                assert sorted(value) == list(wanted), (text, group)
            elif isinstance(value, float) and wanted is not None:
                assert value == pytest.approx(wanted, rel=1e-9, abs=1e-9), (text, group)
            else:
                # DuckDB has NaN for what is not defined.
                undefined = isinstance(wanted, float) and math.isnan(wanted)
                assert value == (None if undefined else wanted), (text, group)


def query(texts: dict[str, str]) -> str:
    chosen = ", ".join(f"{sql} as a{place}" for place, sql in enumerate(texts.values()))
    return f"select g, {chosen} from events group by g"


def test_values_are_those_of_duckdb() -> None:
    connection = duckdb.connect()
    connection.register("events", TABLE)
    compare(DUCK, {row["g"]: row for row in connection.sql(query(DUCK)).to_arrow_table().to_pylist()})


@pytest.mark.slow
def test_values_are_those_of_spark(spark: SparkSession) -> None:
    # In ANSI mode Spark ends a query that divides by zero, as its own functions do for a group of one value; else it has null.
    lenient = spark.newSession()
    lenient.conf.set("spark.sql.ansi.enabled", "false")
    lenient.createDataFrame(TABLE).createOrReplaceTempView("events")
    compare(SPARK, {row["g"]: row.asDict() for row in lenient.sql(query(SPARK)).collect()})


@pytest.mark.slow
def test_tables_have_the_values_of_each_function(spark: SparkSession, tmp_path: Path) -> None:
    texts = {f"a{place}": text for place, text in enumerate([*SPARK, "histogram(d)", "string_agg(s, ' > ', 5)"])}
    config = make_config(
        tmp_path,
        event={"key": "key", "time": "time", "time_unit": "us"},
        session={"gap": "10 minutes", "grace": "10 minutes", "retention": "1 hour"},
        aggregates=texts,
    )
    rows = [{**row._asdict(), "key": f"k{row.group:02}", "time": 10**15 + row.time} for row in ROWS]
    for number, some in enumerate((rows[::2], rows[1::2])):
        write_rows(tmp_path, f"{number}.json", some)
        run(spark, config, once=True)
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
    found = {row["session_key"]: row.asDict(recursive=True) for row in merged_rows(Tables.of(spark, config)).collect()}
    for name, text in texts.items():
        for group, value in values_of(text, ROWS, Random(5)).items():
            wanted = pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value
            assert found[f"k{group:02}"][name] == wanted, (text, group)
