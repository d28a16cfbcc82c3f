"""`make bench-serve`: how long a look-up takes over HTTP, beside the stream at full rate and with nothing else, and what the stream loses by it.

    python -m benchmarks.serve [--quick] [--seconds N]

Stream, server and client are processes of their own on one machine. Requests are due at fixed times, and are timed from then: one that
waits for another counts with its wait. The stream runs three times over the same events: alone, beside the server and its requests, alone
again; how fast it was is counted from its second batch's commit to its last one's. Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.synthetic import GAP, GRACE, RETENTION, write_events
from sessionlake.config.load import load_config
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.lake import Lake

RESULTS = Path(__file__).parent / "results"
PER_SECOND = 200
KEYS = 200_000
CONFIG = f"""\
[pipeline]
name = "NAME"
warehouse = "NAME/warehouse"
store = "NAME/store"
shards = 2
trigger = "0 seconds"

[source]
kind = "files"
path = "events"
format = "parquet"
max_files_per_batch = 1

[event]
key = "key"
time = "ts"

[session]
gap = "{GAP}"
grace = "{GRACE}"
retention = "{RETENTION}"

[aggregates]
total = "sum(amount)"
first_page = "first(page)"
last_page = "last(page)"

[serve]
port = 0
requests_per_second = 100000
"""
console = Console(highlight=False)


@contextmanager
def command(*words: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run a command of sessionlake's while the body runs."""
    process = subprocess.Popen([sys.executable, "-m", "sessionlake", *words], text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


class Client:
    """One connection that stays open."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = HTTPConnection(place.hostname or "", place.port, timeout=60)

    def ask(self, path: str, **parameters: Any) -> dict[str, Any] | None:
        """Return an answer, None where it is an error."""
        self._connection.request("GET", f"{path}?{urlencode(parameters)}")
        answer = self._connection.getresponse()
        body = answer.read()
        return json.loads(body) if answer.status == 200 else None


def timed(ask: Callable[[int], Any], per_second: float | None, stop: Callable[[], bool]) -> dict[str, Any]:
    """Ask at fixed times, or one request after the other; return milliseconds from when each was due to its answer."""
    took, failed = [], 0
    begun = time.perf_counter()
    for n in range(KEYS):
        due = time.perf_counter() if per_second is None else begun + n / per_second
        time.sleep(max(0.0, due - time.perf_counter()))
        failed += ask(n) is None
        took.append(time.perf_counter() - due)
        if stop():
            break
    p50, p99 = np.percentile(np.array(took) * 1e3, [50, 99])
    return {"requests": len(took), "failed": failed, "p50_ms": float(p50), "p99_ms": float(p99)}


def written(work: Path, name: str) -> Path:
    """Write the config of a pipeline of its own over the events."""
    config = work / f"{name}.toml"
    config.write_text(CONFIG.replace("NAME", name))
    return config


def speed(config: Path) -> float:
    """Return the events a second that a stream took in, from its second batch's commit to its last one's."""
    found = list(batches_after(Lake.of(load_config(config)), -1))
    took_us = found[-1].committed_us - found[1].committed_us
    return sum(batch.counts["input"] for batch in found[2:]) / took_us * 1e6


def alone(work: Path, name: str) -> float:
    """Run the stream with nothing beside it; return its events a second."""
    config = written(work, name)
    with command("run", str(config), "--once", stdout=subprocess.DEVNULL) as stream:
        stream.wait()
    return speed(config)


def measure(work: Path, *, events: int, batches: int, users: int, seconds: float) -> dict[str, Any]:
    write_events(work / "events", batches, events, users, 1)
    before = alone(work, "before")
    config = written(work, "beside")
    rng = np.random.default_rng(7)
    keys = [f"user-{n}" for n in rng.integers(0, users, KEYS)]
    found: dict[str, Any] = {}
    with command("serve", str(config), stdout=subprocess.PIPE) as server:
        url = server.stdout.readline().split()[2].rstrip(",") if server.stdout else ""
        client = Client(url)
        with command("run", str(config), "--once", stdout=subprocess.DEVNULL) as stream:
            while client.ask("/v1/status", min_batch_id=1, wait_ms=5000) is None and stream.poll() is None:
                time.sleep(0.5)
            found["one key, beside the stream"] = timed(
                lambda n: client.ask("/v1/sessions", key=keys[n]), PER_SECOND, lambda: stream.poll() is not None
            )
        for _ in range(300):
            client.ask("/v1/sessions", key=keys[0])
        found["one key, nothing else"] = timed(
            lambda n: client.ask("/v1/sessions", key=keys[n]), PER_SECOND, _over(seconds)
        )
        found["one key, one request after the other"] = timed(
            lambda n: client.ask("/v1/sessions", key=keys[n]), None, _over(seconds)
        )
        found["page of 100 of a range"] = timed(
            lambda n: client.ask("/v1/sessions", key_from=keys[n], limit=100), 10, _over(seconds)
        )
        status = client.ask("/v1/status") or {}
    beside, after = speed(config), alone(work, "after")
    found["stream, events a second"] = {"alone": before, "beside": beside, "alone again": after}
    found["stream beside, share of alone"] = 2 * beside / (before + after)
    return {**found, "batches": status["batch_id"] + 1, "events": status["counts"]["input"]}


def _over(seconds: float) -> Callable[[], bool]:
    due = time.monotonic() + seconds
    return lambda: time.monotonic() >= due


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, and a few seconds")
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    size = {"events": 20_000 if asked.quick else 200_000, "batches": 20, "users": 50_000}
    if asked.quick:
        asked.seconds = 5
    with tempfile.TemporaryDirectory() as work:
        found = measure(Path(work), **size, seconds=asked.seconds)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()}
    result = {"at": datetime.now(UTC).isoformat(), "machine": machine, "settings": {**vars(asked), **size}, **found}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"serve-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    table = Table("what", "requests", "failed", "p50 ms", "p99 ms")
    for name, of in found.items():
        if isinstance(of, dict) and "p50_ms" in of:
            table.add_row(name, f"{of['requests']:,}", str(of["failed"]), f"{of['p50_ms']:.2f}", f"{of['p99_ms']:.2f}")
    console.print(table)
    rates = ", ".join(f"{rate:,.0f} {how}" for how, rate in found["stream, events a second"].items())
    share = found["stream beside, share of alone"]
    console.print(f"the stream took in {rates} events a second: {share:.2f} of what it does alone; {target}")


if __name__ == "__main__":
    main()
