"""Reading the tables without Spark: SQL by DuckDB, the rows of a key, views for other engines."""
