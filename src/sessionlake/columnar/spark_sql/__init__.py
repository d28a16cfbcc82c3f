"""Spark's SQL of a config made DuckDB's: parsed, checked against a list, typed and written anew, on the driver.

What is not listed (`operators.py`, `functions.py`, `casts.py`) is refused. What is gives in DuckDB what it gives in Spark:
tests/columnar/test_spark_sql.py compares them on random rows. Where Spark would fail, as at a text that is cast to a number
and is none, the result is null. Types are strict where Spark would cast by itself, so that no rule for that can differ.
Whole numbers have 64 bits, as columns do.
"""

from sessionlake.columnar.spark_sql.parse import Parsed, parse

__all__ = ["Parsed", "parse"]
