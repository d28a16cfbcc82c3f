"""Joins by time beside Spark's own of two streams, over the same files: the same pairs while nothing is late."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.stream.run import run
from tests.operators.joins.join_support import join_config, messages, pairs_of, write


@pytest.mark.slow
def test_pairs_equal_those_of_sparks_streams(spark: SparkSession, tmp_path: Path) -> None:
    config = join_config(tmp_path, grace="1 ms", retention="2 ms")
    for number in range(4):
        for side, rows in messages(number).items():
            write(tmp_path, side, number, [row for row in rows if "line" not in row])
    counts = run(spark, config, once=True).counts
    assert counts["accepted"] == counts["input"] == 4 * 60

    def stream(side: str, column: str) -> DataFrame:
        reader = spark.readStream.schema(f"id string, time_us bigint, {column} bigint").option("maxFilesPerTrigger", 1)
        rows = reader.json(str(tmp_path / side)).withColumn("at", F.timestamp_micros("time_us"))
        return rows.withWatermark("at", "1 second").alias(side)

    near = "left.at between right.at - interval 10 microseconds and right.at + interval 10 microseconds"
    pairs = stream("left", "v").join(stream("right", "w"), F.expr(f"left.id = right.id and {near}")).select("v", "w")
    query = pairs.writeStream.format("memory").queryName("sparks_pairs").outputMode("append")
    query.trigger(availableNow=True).start().awaitTermination()
    found = sorted(tuple(row) for row in spark.table("sparks_pairs").collect())
    assert pairs_of(config) == found != []
