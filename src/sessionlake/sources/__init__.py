"""Sources of events: files, Delta tables, topics; their decoding, the event contract, type inference."""
