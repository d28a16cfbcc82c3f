"""`make bench-kafka`: events from a real broker, as JSON and as Avro, against files of JSON lines of the same content, in one run.

The broker shares the machine's cores with what is measured, and its CPU seconds are not in the figures.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.cases import STREAM_SETTINGS, Found, summary
from benchmarks.processes import input_folder, measure
from benchmarks.run import RESULTS, about
from benchmarks.synthetic import write_events, write_json
from benchmarks.trees import this_tree
from infra.kafka.broker import Broker

PARTITIONS, FILES = 2, 4
FORMATS = ("json", "avro")
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "key", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "amount", "type": "long"},
        {"name": "page", "type": "string"},
        {"name": "offset", "type": "long"},
    ],
}
console = Console(highlight=False)


def topic_of(broker: Broker, format_: str, schema: Path, events: int) -> Found:
    """Return the config's section of a topic."""
    source = {
        "kind": "kafka",
        "bootstrap_servers": broker.bootstrap_servers,
        "topic": format_,
        "format": format_,
        "max_offsets_per_batch": events,
    }
    return source | ({"avro_schema": str(schema)} if format_ == "avro" else {})


def measure_all(work: Path, events: int, batches: int, rounds: int) -> Found:
    parquet, lines, schema = work / "parquet", work / "json", work / "event.avsc"
    write_events(parquet, batches, events, events, FILES)
    write_json(parquet, lines)
    schema.write_text(json.dumps(AVRO))
    settings = {"shards": 2, "driver_memory": "6g", "conf": {}}
    case = settings | {"kind": "stream", "batches": batches, "events": str(lines), "format": "json", "files": FILES}
    runs: dict[str, list[Found]] = {"files": [], **{format_: [] for format_ in FORMATS}}
    with Broker(work / "kafka") as broker:
        topics = [NewTopic(format_, PARTITIONS, 1) for format_ in FORMATS]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics(topics).values():
            made.result(30)
        produced = {"kind": "produce", "servers": broker.bootstrap_servers, "events": str(parquet), "schema": AVRO}
        measure(this_tree(), settings | produced, work)
        for _ in range(rounds):
            for name, ran in runs.items():
                # As `sessionlake run` has it: the settings are those of streams of files.
                how = (
                    {"conf": STREAM_SETTINGS} if name == "files" else {"source": topic_of(broker, name, schema, events)}
                )
                ran.append(measure(this_tree(), case | how, work))
    found: Found = {name: summary(ran, events) for name, ran in runs.items()}
    for format_ in FORMATS:
        found[f"{format_}_against_files"] = round(found["files"]["median_s"] / found[format_]["median_s"], 3)
    return found | {"events_per_batch": events, "batches": batches}


def show(found: Found) -> None:
    table = Table("source, 1M a batch", "events/s", "CPU s a batch", "against files", title="sessionlake, local[2]")
    for name in ("files", *FORMATS):
        one, ratio = found[name], found.get(f"{name}_against_files")
        label = "files of JSON lines" if name == "files" else f"Kafka, {name}"
        table.add_row(label, f"{one['events_per_s']:,}", f"{one['cpu_s']:.2f}", f"{ratio:.2f}x" if ratio else "")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="a batch")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    told = about((this_tree(),), STREAM_SETTINGS, None)
    with input_folder() as work:
        found = measure_all(work, arguments.events, arguments.batches, arguments.rounds)
    show(found)
    file = RESULTS / f"kafka-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    file.write_text(json.dumps(told | found, indent=1) + "\n")
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
