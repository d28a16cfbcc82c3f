"""Where events come from: files, Delta tables, topics; their decoding, the event contract, type inference."""
