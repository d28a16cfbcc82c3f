"""Spark's SQL of a config made DuckDB's: parsed, checked against a list, typed and written again, on the driver.

Only listed expressions are accepted (`operators.py`, `functions.py`, `casts.py`). They have the same results in DuckDB as in
Spark: tests/columnar/test_spark_sql.py compares them on random rows. If Spark would fail, the result is null, for example for
the cast of 'abc' to a number. Types are strict: an implicit cast of Spark is refused, so no rule for it can differ.
Whole numbers have 64 bits, as columns do.
"""

from sessionlake.columnar.spark_sql.dialect import SparkByNames
from sessionlake.columnar.spark_sql.parse import Parsed, parse, start_of, told_by

__all__ = ["Parsed", "SparkByNames", "parse", "start_of", "told_by"]
