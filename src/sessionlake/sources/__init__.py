"""Event files to Arrow: decoding, the event contract and type inference, none of it needing Spark."""
