"""The Delta tables read without Spark: logs and rows by deltalake, SQL by DuckDB."""
