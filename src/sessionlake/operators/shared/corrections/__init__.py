"""The outcome of corrections that a shard decides: applied, or stale and a dead letter."""
