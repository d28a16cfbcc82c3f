"""Groups: one row a key, with the aggregates of all its events."""
