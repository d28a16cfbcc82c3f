"""Pure session algebra: no Spark, no RocksDB, no clock. Times are int64 microseconds of UTC."""
