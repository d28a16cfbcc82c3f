"""The Delta tables of a warehouse, in layers: files < log < transactions < tables."""

from sessionlake.history import user_metadata
from sessionlake.tables.log import USER_METADATA, Commit
from sessionlake.tables.tables import Tables, spark_schema
from sessionlake.tables.transactions import FENCED, DataFile

__all__ = ["FENCED", "USER_METADATA", "Commit", "DataFile", "Tables", "spark_schema", "user_metadata"]
