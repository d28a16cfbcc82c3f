"""Windows and joins without Spark: one message at a time, with their state in a directory."""
