"""`make bench-serve`: how long a look-up takes over HTTP, beside the stream at full rate and with nothing else.

    python -m benchmarks.serve [--quick] [--seconds N]

Stream, server and client are processes of their own on one machine. Requests are due at fixed times, and are timed from then: one that
waits for another counts with its wait. Writes a JSON file to benchmarks/results/.
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

RESULTS = Path(__file__).parent / "results"
PER_SECOND = 200
KEYS = 200_000
CONFIG = f"""\
[pipeline]
name = "serve"
warehouse = "warehouse"
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


def measure(work: Path, *, events: int, batches: int, users: int, seconds: float) -> dict[str, Any]:
    write_events(work / "events", batches, events, users, 1)
    config = work / "serve.toml"
    config.write_text(CONFIG)
    rng = np.random.default_rng(7)
    keys = [f"user-{n}" for n in rng.integers(0, users, KEYS)]
    found: dict[str, Any] = {}
    with command("serve", str(config), stdout=subprocess.PIPE) as server:
        url = server.stdout.readline().split()[2].rstrip(",") if server.stdout else ""
        client = Client(url)
        with command("run", str(config), "--once", stdout=subprocess.DEVNULL) as stream:
            while client.ask("/v1/status", min_batch_id=1, wait_ms=5000) is None and stream.poll() is None:
                time.sleep(0.5)
            begun, first = time.monotonic(), client.ask("/v1/status") or {}
            found["one key, beside the stream"] = timed(
                lambda n: client.ask("/v1/sessions", key=keys[n]), PER_SECOND, lambda: stream.poll() is not None
            )
            last = client.ask("/v1/status") or {}
            done = last["counts"]["input"] - first["counts"]["input"]
            found["events a second of the stream meanwhile"] = done / (time.monotonic() - begun)
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
        if isinstance(of, dict):
            table.add_row(name, f"{of['requests']:,}", str(of["failed"]), f"{of['p50_ms']:.2f}", f"{of['p99_ms']:.2f}")
    console.print(table)
    console.print(f"the stream took {found['events a second of the stream meanwhile']:,.0f} events a second; {target}")


if __name__ == "__main__":
    main()
