"""What users ask of the tables without Spark: SQL by DuckDB, the sessions or windows of a key, views for other engines."""
