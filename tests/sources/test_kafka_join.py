"""A join of files with a topic of a real broker: rows that are files and rows that are records in one query."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.jobs.publish import publish
from sessionlake.stream.run import run
from tests.operators.joins.join_support import accepted, join_config, joined, messages, pairs_of, read, write
from tests.sources.kafka_support import Topic, records


@pytest.mark.slow
def test_files_beside_a_topic_and_their_pairs_to_another_topic(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    topic = Topic.create(broker, partitions=1)
    source = {"kind": "kafka", "topic": topic.name, "bootstrap_servers": broker.bootstrap_servers, "format": "json"}
    sink = {"kafka": {"bootstrap_servers": broker.bootstrap_servers, "topic": f"{topic.name}-pairs"}}
    config = join_config(tmp_path, right={"source": source}, sink=sink)
    for number in range(3):
        batch = messages(number)
        write(tmp_path, "left", number, batch["left"])
        topic.send({"value": row["line"] if "line" in row else json.dumps(row)} for row in batch["right"])
        run(spark, config, once=True)
    found = accepted([messages(number) for number in range(3)])
    assert pairs_of(config) == joined(found)
    places = [row["source"] for row in read(config, "dead_letters").to_pylist() if row["side"] == "right"]
    assert len(places) == sum(side == ("right",) for side in found["dead"])
    assert all(place.startswith(f"{topic.name}/") for place in places)
    publish(spark, config, once=True)
    sent = records(broker, f"{topic.name}-pairs", "join").values()
    assert sorted((row["orders_v"], row["shipments_w"]) for row in sent) == joined(found)
