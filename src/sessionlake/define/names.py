"""The classes of sections and aggregates, by attribute; names.pyi has their arguments for type checkers.

`python -m tests.define.stub` writes both files' `__all__`, by which `dir(sessionlake)` shows the names without the registries.
"""

from typing import Any

__all__ = [
    "Airflow",
    "AnyValue",
    "ApproxCountDistinct",
    "Avg",
    "BitAnd",
    "BitOr",
    "BitXor",
    "BoolAnd",
    "BoolOr",
    "ChangeFeed",
    "Collect",
    "CollectSet",
    "Compact",
    "Corr",
    "Count",
    "CountDistinct",
    "CountIf",
    "CountedWindows",
    "CovarPop",
    "CovarSamp",
    "Delta",
    "Event",
    "Expire",
    "Files",
    "First",
    "FirstPosition",
    "Groups",
    "Histogram",
    "Joins",
    "Kafka",
    "KeyedTable",
    "Kurtosis",
    "Last",
    "LastPosition",
    "Left",
    "Lineage",
    "Lookup",
    "Max",
    "MaxBy",
    "Median",
    "Metrics",
    "Min",
    "MinBy",
    "Mode",
    "Percentile",
    "Processors",
    "Product",
    "Quality",
    "Quantile",
    "Quarantine",
    "RegrIntercept",
    "RegrSlope",
    "Results",
    "Right",
    "Serve",
    "Sessions",
    "Sink",
    "Skewness",
    "Stddev",
    "StddevPop",
    "StringAgg",
    "Sum",
    "TableJoins",
    "Ttl",
    "VarPop",
    "Variance",
    "Windows",
]


def __getattr__(name: str) -> Any:
    from sessionlake.define.classes import classes  # noqa: PLC0415 (the package's other names need no pydantic)

    if name not in classes():
        raise AttributeError(f"module 'sessionlake' has no attribute {name!r}")
    return classes()[name]
