"""The Delta tables of a warehouse, in layers: files < log < transactions < tables."""

from sessionlake.delta_log import FENCED, USER_METADATA, Commit
from sessionlake.history import user_metadata
from sessionlake.tables.tables import Tables, spark_schema
from sessionlake.tables.transactions import DataFile

__all__ = ["FENCED", "USER_METADATA", "Commit", "DataFile", "Tables", "spark_schema", "user_metadata"]
