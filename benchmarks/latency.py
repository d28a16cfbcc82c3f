"""`make bench-latency`: from a producer's timestamp to the Delta commit that holds the event, through a real Kafka broker.

A producer in a process of its own sends a steady stream; the broker, Spark and its workers share this machine with it.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from infra.kafka.broker import Broker
from sessionlake.config.load import load_config
from sessionlake.engine.spark import build_session
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit

TOPIC, PARTITIONS, USERS = "clicks", 2, 100_000
WARM_UP_S = 10
SLICE_S = 0.01
RESULTS = Path(__file__).parent / "results"
CONFIG = """\
[pipeline]
name = "latency"
warehouse = "warehouse"
shards = 2
trigger = "0 seconds"

[source]
kind = "kafka"
bootstrap_servers = "{servers}"
topic = "clicks"
format = "json"

[source.types]
user = "string"
ts = "long"
amount = "long"

[event]
key = "user"
time = "ts"
time_unit = "ms"

[session]
gap = "30 minutes"
grace = "2 hours"
retention = "1 day"

[aggregates]
total = "sum(amount)"
"""
console = Console(highlight=False)


@dataclass
class Sent:
    """Where the producer's records were stored, and the timestamps they were given."""

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    timestamp_ms: list[int] = field(default_factory=list)
    failed: int = 0

    def stored(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        self.partition.append(message.partition() or 0)
        self.offset.append(message.offset() or 0)
        self.timestamp_ms.append(message.timestamp()[1])


def produce(servers: str, events: int, per_second: int, target: str) -> None:
    """Send events at a steady rate; write where each was stored to a file."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    rng = np.random.default_rng(7)
    users = rng.integers(0, USERS, events).tolist()
    sent, done = Sent(), 0
    started = time.time()
    while done < events:
        due = min(events, round((time.time() - started) * per_second))
        for user in users[done:due]:
            now_ms = time.time_ns() // 1_000_000
            value = f'{{"user":"user-{user}","ts":{now_ms},"amount":{user % 100},"page":"/products/{user % 977}"}}'
            producer.produce(TOPIC, value, f"user-{user}", timestamp=now_ms, on_delivery=sent.stored)
        done = max(done, due)
        producer.poll(SLICE_S)
        time.sleep(max(0.0, started + done / per_second + SLICE_S - time.time()))
    producer.flush(60)
    if sent.failed:
        raise RuntimeError(f"{sent.failed} events were not stored")
    np.savez(target, partition=sent.partition, offset=sent.offset, timestamp_ms=sent.timestamp_ms)


@dataclass
class Commits:
    """When each batch was committed, and the offsets it ended before."""

    offsets: Path
    wanted: int
    at: list[float] = field(default_factory=list)
    ends: list[dict[str, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    read: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def committed(self, batch: BatchCommit) -> None:
        now = time.time()
        self.at.append(now)
        # Read now, since Spark keeps the last hundred only.
        lines = (self.offsets / str(batch.batch_id)).read_text().splitlines()[1:]
        self.ends.append(next(line[TOPIC] for line in map(json.loads, lines) if TOPIC in line))
        self.seconds.append(now - batch.started_us / 1e6)
        self.read += batch.counts.get("input", 0)
        if self.read >= self.wanted:
            self.done.set()


def latencies(commits: Commits, sent: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return of each event when it was produced, in seconds since the first, and how long after that it was committed."""
    committed, stored = np.array(commits.at), np.load(sent)
    at = np.empty(len(stored["offset"]))
    for partition in range(PARTITIONS):
        ends = np.array([end.get(str(partition), 0) for end in commits.ends])
        of_partition = stored["partition"] == partition
        at[of_partition] = committed[np.searchsorted(ends, stored["offset"][of_partition], side="right")]
    produced = stored["timestamp_ms"] / 1000
    return produced - produced.min(), at - produced


def measure(work: Path, per_second: int, seconds: int) -> dict[str, Any]:
    spark = build_session("latency", master="local[2]", shuffle_partitions=2, driver_memory="2g")
    with Broker(work / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        path = work / "latency.toml"
        path.write_text(CONFIG.format(servers=broker.bootstrap_servers))
        config, sent = load_config(path), work / "sent.npz"
        # Tables, and the JVM's and the workers' first batch, are not what a steady stream pays for.
        produce(broker.bootstrap_servers, 1000, 1000, str(work / "first.npz"))
        run(spark, config, once=True)

        events = per_second * (WARM_UP_S + seconds)
        commits = Commits(Path(config.checkpoint) / "offsets", events)
        spawn = multiprocessing.get_context("spawn")
        producer = spawn.Process(target=produce, args=(broker.bootstrap_servers, events, per_second, str(sent)))

        def stop_when_done() -> None:
            producer.start()
            producer.join()
            commits.done.wait(120)
            for query in spark.streams.active:
                query.stop()

        thread = threading.Thread(target=stop_when_done)
        thread.start()
        run(spark, config, on_commit=commits.committed)
        thread.join()
        if producer.exitcode or commits.read != events:
            raise RuntimeError(f"{commits.read} of {events} events were committed, producer exit {producer.exitcode}")
        produced, latency = latencies(commits, sent)
    spark.stop()
    steady = latency[produced >= WARM_UP_S]
    p50, p90, p99 = np.percentile(steady, [50, 90, 99])
    return {
        "events_per_s": per_second,
        "offered_per_s": round(len(latency) / produced.max()),
        "seconds": seconds,
        "events": len(steady),
        "batches": len(commits.at),
        "batch_median_s": round(float(np.median(commits.seconds)), 3),
        "latency_s": {"p50": _rounded(p50), "p90": _rounded(p90), "p99": _rounded(p99), "max": _rounded(steady.max())},
    }


def _rounded(value: float) -> float:
    return round(float(value), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events-per-second", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="sessionlake-latency-"))
    load_before = os.getloadavg()[0]
    try:
        found = measure(work, arguments.events_per_second, arguments.seconds)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    about = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_before": round(load_before, 2),
    }
    table = Table("measurement", "", title="event to Delta row through Kafka, local[2], broker and producer beside it")
    table.add_row("events/s", f"{found['events_per_s']:,} ({found['offered_per_s']:,} sent)")
    table.add_row("batches, median s", f"{found['batches']}, {found['batch_median_s']}")
    for name, value in found["latency_s"].items():
        table.add_row(f"latency {name}, s", f"{value:.2f}")
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-latency.json"
    file.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
