"""Names of cleanups of [ttl] in changes and in states. It imports nothing: readers of tables import it."""

TTL, LRU = "ttl", "lru"
"""Causes of a change: a row's time is over, or there are too many rows."""
LIVE_ROWS = "live_rows"
"""The number of a keyed table's state that is how many rows it has; null if that was not counted from the start."""
EXPIRY_LAG, ROUND = "expiry_lag_us", "cleanup_round_us"
"""Numbers of a state about the last cleanup of [ttl]: how long ago, at most, the removed rows had expired; and how long ago, at
most, the round of its shards began, or ended, if a cleanup looks at a part of the rows."""
EVICTED_ROWS = "evicted_rows"
"""The number of a keyed table's state that is how many rows have gone, because there were too many, before their time was over."""
EXPIRED_EVENTS = "expired_events"
"""The number of a state of sessions that is how many events those had which [ttl] has removed."""
