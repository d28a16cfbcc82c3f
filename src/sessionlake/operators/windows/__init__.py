"""Windows by time: tumbling, hopping, sliding and calendar windows."""
