"""What expressions over an event see beside the source's columns."""

KEY, EVENT_TIME = "key", "event_time"
"""The key as text, and the time in UTC; a column of the source that is called so is hidden by them."""
