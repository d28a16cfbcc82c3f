"""`make bench-peers`: sessions, windows and joins on this engine, Kafka Streams, Flink, Spark's own operators and DuckDB."""
