"""One runtime without Spark for any operator: rows in, outputs and the next state out, on shards of this process."""
