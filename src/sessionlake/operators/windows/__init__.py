"""Windows by time: tumbling ones, in update mode."""
