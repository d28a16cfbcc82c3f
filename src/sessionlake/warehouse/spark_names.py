"""Names of Spark that are imported when they are first used: commands without Spark import sources and operators, too."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta.tables import DeltaTable as DeltaTable
    from py4j.java_gateway import is_instance_of as is_instance_of
    from py4j.protocol import Py4JJavaError as Py4JJavaError
    from pyspark.errors import AnalysisException as AnalysisException
    from pyspark.errors import PySparkException as PySparkException
    from pyspark.sql import Column as Column
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import Window as Window
    from pyspark.sql.pandas.types import from_arrow_schema as from_arrow_schema
    from pyspark.sql.pandas.types import to_arrow_schema as to_arrow_schema
    from pyspark.sql.types import StructField as StructField
    from pyspark.sql.types import StructType as StructType

_PLACES = {
    "DeltaTable": "delta.tables",
    "is_instance_of": "py4j.java_gateway",
    "Py4JJavaError": "py4j.protocol",
    "AnalysisException": "pyspark.errors",
    "PySparkException": "pyspark.errors",
    "Column": "pyspark.sql",
    "DataFrame": "pyspark.sql",
    "Window": "pyspark.sql",
    "from_arrow_schema": "pyspark.sql.pandas.types",
    "to_arrow_schema": "pyspark.sql.pandas.types",
    "StructField": "pyspark.sql.types",
    "StructType": "pyspark.sql.types",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
