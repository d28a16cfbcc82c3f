"""Spark's SQL as expressions read it: without the parser's own nodes for functions that are read by name.

Such a node may drop what the text says: the parser has the patterns `y` and `yyyy` of `date_format` as the same code.
"""

from sqlglot.dialects import Spark

from sessionlake.columnar.spark_sql.functions import BY_NAME, RULES_BY_NAME


def _is_by_name(name: str) -> bool:
    return name.lower() in BY_NAME or name.lower() in RULES_BY_NAME


class SparkByNames(Spark):  # type: ignore[misc] # the package's dialects have no types
    """The dialect.

    >>> import sqlglot
    >>> sqlglot.parse_one("upper(s)", read=SparkByNames).expressions[0].name
    's'
    """

    class Parser(Spark.Parser):  # type: ignore[misc]
        """The parser of Spark's SQL."""

        FUNCTIONS = {name: make for name, make in Spark.Parser.FUNCTIONS.items() if not _is_by_name(name)}  # noqa: RUF012
        FUNCTION_PARSERS = {name: make for name, make in Spark.Parser.FUNCTION_PARSERS.items() if not _is_by_name(name)}  # noqa: RUF012
