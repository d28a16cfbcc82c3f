"""Windows and sessions by count: on the axis of message numbers."""
