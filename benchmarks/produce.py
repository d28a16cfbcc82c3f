"""Events from files into a topic's partitions, in the files' order, as JSON and as Avro: by Spark's own writer, which is fast."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from benchmarks.ours import open_session


def produce(case: dict[str, Any]) -> dict[str, Any]:
    """Write each file by one task into one partition, file i into partition i modulo 2, the two at the same time."""
    spark = open_session(case)
    files = sorted(Path(case["events"]).iterdir())
    event = F.struct("key", "ts", "amount", "page", "offset")
    texts = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"}
    values = {"json": F.to_json(event, texts), "avro": to_avro(event, json.dumps(case["schema"]))}

    def write(partition: int) -> None:
        for file in files[partition::2]:
            rows = spark.read.parquet(str(file)).coalesce(1)
            for topic, value in values.items():
                records = rows.select(value.alias("value"), F.lit(partition).alias("partition"))
                writer = records.write.format("kafka").option("kafka.bootstrap.servers", case["servers"])
                writer.option("topic", topic).option("kafka.batch.size", "262144").option("kafka.linger.ms", "5").save()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (0, 1)))
    spark.stop()
    return {"files": len(files)}
