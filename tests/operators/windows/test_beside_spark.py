"""Windows beside Spark's own: `window()` as a stream over the same files, in the same order. Both count every event while nothing is late."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.stream.run import run
from tests.operators.windows.window_support import KINDS, OFFSET, SIZE, UPDATES, events, window_config, windows
from tests.support import write_rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
def test_windows_equal_those_of_sparks_stream(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    patient = {"grace": "1 ms", "retention": "2 ms"}
    config = window_config(tmp_path, emit=UPDATES, **{**KINDS[kind], **patient})
    for number, rows in enumerate(events(3, 4, 40)):
        write_rows(tmp_path, f"{number}.json", rows)
    counts = run(spark, config, once=True).counts
    assert counts["accepted"] == counts["input"] == 160
    stream = spark.readStream.schema("key string, time_us bigint, v bigint").option("maxFilesPerTrigger", 1)
    advance = KINDS[kind].get("advance", f"{SIZE} us").replace("us", "microseconds")
    window = F.window(F.timestamp_micros("time_us"), f"{SIZE} microseconds", advance, f"{OFFSET} microseconds")
    sums = (
        stream.json(str(tmp_path / "events"))
        .groupBy("key", window.alias("w"))
        .agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    )
    query = sums.writeStream.format("memory").queryName("sparks_windows").outputMode("complete")
    query.trigger(availableNow=True).start().awaitTermination()
    times = (F.unix_micros("w.start"), F.unix_micros("w.end"))
    found = spark.table("sparks_windows").select("key", *times, "n", "total").collect()
    assert windows(spark, config) == sorted(tuple(row) for row in found)
