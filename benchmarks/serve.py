"""`make bench-serve`: how long a look-up takes over HTTP, beside the stream at full rate and with nothing else, and what the stream loses by it.

    python -m benchmarks.serve [--quick] [--seconds N]

Stream, server and client are processes of their own on one machine. Requests are due at fixed times, and are timed from then: one that
waits for another counts with its wait. The stream runs four times over the same events: alone, beside the server and its requests, the
same with the stream niced by 5 (as `nice -n 5 sessionlake run`), alone again; how fast it was is counted from its second batch's commit
to its last one's. A batch is visible when the first answer names it, and waits for that from the time of its commit's file. CPU of the
server is that of its main thread, which answers look-ups of a key, and of all its others, which follow commits and read pages of ranges.
Writes a JSON file to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.processes import command
from benchmarks.synthetic import GAP, GRACE, RETENTION, write_events
from sessionlake.config.load import Config, load_config
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.lake import Lake

RESULTS = Path(__file__).parent / "results"
PER_SECOND = 200
KEYS = 20_000
NICE = 5
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
tokens = false
"""
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_TICKS = os.sysconf("SC_CLK_TCK")
console = Console(highlight=False)


@contextmanager
def serving(config: Path) -> Iterator[tuple[int, str]]:
    """Run a query server while the body runs; yield its process and its address."""
    with command("serve", str(config), stdout=subprocess.PIPE) as server:
        yield server.pid, server.stdout.readline().split()[2].rstrip(",") if server.stdout else ""


class Client:
    """One connection that stays open, and no more of HTTP than the server's answers have.

    It runs on the cores that stream and server have, and http.client would take more than twice as much of them.
    """

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._host = place.netloc
        self._socket = socket.create_connection((place.hostname or "", place.port or 0), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, path: str, **parameters: Any) -> bytes:
        """Return a request, to be asked any number of times."""
        return f"GET {path}?{urlencode(parameters)} HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode()

    def ask(self, request: bytes) -> bytes | None:
        """Return the body of an answer, None where it is an error."""
        self._socket.sendall(request)
        answer = self._more()
        while (head := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        length = _LENGTH.search(answer, 0, head)
        if length is None:
            raise ConnectionError(f"an answer without a length: {answer[:head]!r}")
        while len(answer) < head + 4 + int(length[1]):
            answer += self._more()
        return answer[head + 4 :] if answer.startswith(b"HTTP/1.1 200 ") else None

    def _more(self) -> bytes:
        found = self._socket.recv(1 << 20)
        if not found:
            raise ConnectionError("the server closed the connection")
        return found

    def close(self) -> None:
        self._socket.close()


def cpu_s(pid: int) -> tuple[float, float]:
    """Return CPU seconds of a process's main thread, and of all its other threads, those that ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    main = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    return main, max(0.0, sum(map(int, fields[11:13])) / _TICKS - main)


def timed(
    place: tuple[int, str],
    asked: Sequence[dict[str, Any]],
    per_second: float | None,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Ask a server for sessions at fixed times, or one request after the other; return milliseconds from when each was due to its answer.

    `seen` has the batches that answers named, each with the time of its first answer in seconds since 1970.
    """
    pid, url = place
    took, failed, named, seen = [], 0, b"", {}
    with closing(Client(url)) as client:
        requests = [client.request("/v1/sessions", **one) for one in asked]
        for request in requests[:200]:
            client.ask(request)
        used, own = cpu_s(pid), time.process_time()
        begun = time.perf_counter()
        while not stop():
            due = time.perf_counter() if per_second is None else begun + len(took) / per_second
            time.sleep(max(0.0, due - time.perf_counter()))
            body = client.ask(requests[len(took) % len(requests)])
            took.append(time.perf_counter() - due)
            if body is None:
                failed += 1
            elif (batch := body[: body.index(b",")]) != named:
                named = batch
                seen[int(batch.rpartition(b":")[2])] = time.time()
        own, used = time.process_time() - own, tuple(max(0.0, b - a) for a, b in zip(used, cpu_s(pid), strict=True))
    seconds, milliseconds = time.perf_counter() - begun, np.array(took) * 1e3
    p50, p99 = np.percentile(milliseconds, [50, 99])
    shares = {"server": used[0], "server's other threads": used[1], "client": own}
    return {
        "requests": len(took),
        "failed": failed,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "cpu_us_a_request": {name: round(of / len(took) * 1e6) for name, of in shares.items()},
        "cpu_share_of_a_core": {name: round(of / seconds, 3) for name, of in shares.items()},
        "seen": seen,
    }


def visible(config: Config, seen: dict[int, float]) -> dict[str, Any]:
    """Return milliseconds from a commit's file to the first answer that named its batch; the first answer of all tells nothing."""
    lake = Lake.of(config)
    log = Path(lake[lake.changelog.changes].uri, "_delta_log")
    made = {batch.batch_id: log / f"{batch.version:020d}.json" for batch in batches_after(lake, -1)}
    waits = [(at - made[batch].stat().st_mtime) * 1e3 for batch, at in list(seen.items())[1:]]
    if not waits:
        return {"batches": 0}
    p50, p99 = np.percentile(waits, [50, 99])
    return {"batches": len(waits), "p50_ms": float(p50), "p99_ms": float(p99), "most_ms": max(waits)}


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


def beside(work: Path, name: str, asked: Sequence[dict[str, Any]], nice: int) -> dict[str, Any]:
    """Run the stream beside a server that is asked all the time; return what both did."""
    config = written(work, name)
    with (
        serving(config) as place,
        command("run", str(config), "--once", nice=nice, stdout=subprocess.DEVNULL) as stream,
    ):
        while stream.poll() is None:
            with closing(Client(place[1])) as client:
                if client.ask(client.request("/v1/status", min_batch_id=1, wait_ms=5000)) is not None:
                    break
            time.sleep(0.2)
        found = timed(place, asked, PER_SECOND, lambda: stream.poll() is not None)
    waits = visible(load_config(config), found.pop("seen"))
    return {**found, "commit to visible": waits, "events_per_second": speed(config)}


def measure(work: Path, *, events: int, batches: int, users: int, seconds: float) -> dict[str, Any]:
    write_events(work / "events", batches, events, users, 1)
    rng = np.random.default_rng(7)
    keys = [f"user-{n}" for n in rng.integers(0, users, KEYS)]
    one, ranges = [{"key": key} for key in keys], [{"key_from": key, "limit": 100} for key in keys[:1000]]
    rates = {"alone": alone(work, "before")}
    found: dict[str, Any] = {}
    for name, nice in (("equal", 0), ("niced", NICE)):
        way = "beside the stream" + (f" niced by {nice}" if nice else "")
        found[f"one key, {way}"] = beside(work, name, one, nice)
        rates[way] = found[f"one key, {way}"].pop("events_per_second")
    rates["alone again"] = alone(work, "after")
    with serving(work / "equal.toml") as place:
        found["one key, nothing else"] = timed(place, one, PER_SECOND, _over(seconds))
        found["one key, one request after the other"] = timed(place, one, None, _over(seconds))
        found["page of 100 of a range"] = timed(place, ranges, 10, _over(seconds))
        with closing(Client(place[1])) as client:
            status = json.loads(client.ask(client.request("/v1/status")) or b"{}")
    for of in found.values():
        of.pop("seen", None)
    mean = (rates["alone"] + rates["alone again"]) / 2
    shares = {way: rate / mean for way, rate in rates.items() if way.startswith("beside")}
    found |= {"stream, events a second": rates, "stream, share of alone": shares}
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
    table = Table("what", "requests", "failed", "p50 ms", "p99 ms", "CPU, us: server", "its others", "client")
    for name, of in found.items():
        if isinstance(of, dict) and "p50_ms" in of:
            times = f"{of['p50_ms']:.2f}", f"{of['p99_ms']:.2f}"
            table.add_row(
                name, f"{of['requests']:,}", str(of["failed"]), *times, *map(str, of["cpu_us_a_request"].values())
            )
            if waits := of.get("commit to visible"):
                console.print(f"{name}: commit to visible {waits}")
    console.print(table)
    rates = ", ".join(f"{rate:,.0f} {how}" for how, rate in found["stream, events a second"].items())
    shares = ", ".join(f"{share:.2f} {how}" for how, share in found["stream, share of alone"].items())
    console.print(f"the stream took in {rates} events a second; of what it does alone {shares}; {target}")


if __name__ == "__main__":
    main()
