"""The engine: shards, placement, commits and restores. It knows nothing of sessions."""
