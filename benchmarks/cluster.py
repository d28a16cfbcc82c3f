"""`make bench-cluster`: workers of half a core on a real cluster of Spark: throughput of four against one, and ten minutes in which executors are killed.

All processes of the cluster share this machine; a control group (cgroup) gives each worker, with its executors and their Python, half a core. So
the machine has to let this process make one, as it lets root. The driver and the master have what the workers leave.

- Throughput: sessions of the same files, on one, two and four workers of half a core, and on one worker of two cores.
- Kills: files come at a steady rate, for ten minutes, and each minute the executor of another worker gets SIGKILL. Of each kill the run
  says how long it took to the next commit, and until files waited no longer for their commit than twice the median of the undisturbed first
  minute. At the end all sessions are compared, row by row, with DuckDB's.

Writes a JSON file to benchmarks/results/.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.cases import STREAM_SETTINGS, summary
from benchmarks.duck import SESSIONS
from benchmarks.memory import end_sampling
from benchmarks.ours import Commits, make_config
from benchmarks.processes import input_folder, measure
from benchmarks.run import RESULTS, about
from benchmarks.synthetic import GAP, write_events
from benchmarks.trees import this_tree
from infra.spark.cluster import STORE_VARIABLE, Cluster
from sessionlake.config.load import Config
from sessionlake.engine.spark import build_session
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

Found = dict[str, Any]
LAYOUTS = ((1, 0.5), (2, 0.5), (4, 0.5), (1, 2.0))
"""Workers, and the cores that each may take."""
SHARDS, FILES, USERS = 8, 4, 1_000_000
UNDISTURBED_S, EVERY_S, LANDS_S = 60.0, 60.0, 2.0
"""How long the stream runs before the first kill, the seconds between two kills, and between two files."""
CALM = 2.0
"""Files wait as long as ever if they wait at most so many times the median of the undisturbed time."""
GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
console = Console(highlight=False)


@contextmanager
def limited(cluster: Cluster, cores: float) -> Iterator[None]:
    """Let each worker, and all that it starts from now on, take at most so many cores; SystemExit if the machine does not allow it."""
    groups: list[Path] = []
    try:
        try:
            for number in range(cluster.workers):
                _limit(cluster.pid(f"worker-{number}"), cores, groups)
        except OSError as error:
            raise SystemExit(
                f"bench: no control group of CPU ({error}); run it as root, or in a container that has them"
            ) from None
        yield
    finally:
        for group in groups:
            _free(group)


def _limit(pid: int, cores: float, groups: list[Path]) -> None:
    """Put a process into a new group.

    The settings of version 2 are as its documentation has them; the runs in results/ are of a machine with version 1.
    """
    unified = (GROUPS / "cgroup.controllers").exists()
    quota = round(cores * PERIOD_US)
    limits = {"cpu.max": f"{quota} {PERIOD_US}"}
    if not unified:
        limits = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    group = GROUPS / ("" if unified else "cpu") / f"sessionlake-{pid}"
    group.mkdir()
    groups.append(group)
    for name, value in {**limits, "cgroup.procs": str(pid)}.items():
        (group / name).write_text(value)


def _free(folder: Path) -> None:
    """Let go of a group: its processes belong to the group above again."""
    for pid in (folder / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (folder.parent / "cgroup.procs").write_text(pid)
    with suppress(OSError):
        folder.rmdir()


def open_session(cluster: Cluster) -> SparkSession:
    """Return the session of a driver on the cluster, with an executor of all its cores on each worker."""
    conf = {
        **STREAM_SETTINGS,
        **cluster.settings(),
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": str(cluster.workers * cluster.cores),
        "spark.executor.cores": str(cluster.cores),
        "spark.executor.memory": "700m",
        "spark.executor.extraJavaOptions": JAVA,
    }
    return build_session("bench", shuffle_partitions=SHARDS, driver_memory="2g", extra_conf=conf)


def _config(case: Found, source: str) -> Config:
    own = {"shards": SHARDS, "events": source, "format": "parquet", "pipeline": {"store": f"${{{STORE_VARIABLE}}}"}}
    return make_config(Path(case["home"]), case | own)


@contextmanager
def _cluster(case: Found) -> Iterator[Cluster]:
    cores = case["cores"]
    size = {"workers": case["workers"], "cores": max(1, int(cores)), "memory": "1g"}
    with Cluster(Path(case["home"], "spark"), **size) as cluster, limited(cluster, cores):
        yield cluster


def on_cluster(case: Found) -> Found:
    """Run over all events there are, on a cluster of its own."""
    commits = Commits(case["batches"])
    with _cluster(case) as cluster:
        spark = open_session(cluster)
        run(spark, _config(case, case["events"]), once=True, on_commit=commits)
        spark.stop()
    return commits.found()


class Killing:
    """A stream on a cluster: files that land at a steady rate, executors that are killed, and when all of it was committed."""

    def __init__(self, case: Found, cluster: Cluster, spark: SparkSession) -> None:
        self.case, self.cluster, self.spark = case, cluster, spark
        self.source = Path(case["home"], "source")
        self.source.mkdir()
        self.files = sorted(Path(case["events"]).iterdir())
        self.rows = np.cumsum([pq.read_metadata(file).num_rows for file in self.files])
        self.landed: list[float] = []
        self.killed: list[float] = []
        self.commits: list[tuple[float, int, list[int]]] = []
        """Of each batch: when it was committed, the rows up to then, and the shards that were restored."""
        self.all_committed = threading.Event()

    def committed(self, batch: BatchCommit) -> None:
        rows = batch.counts.get("input", 0) + (self.commits[-1][1] if self.commits else 0)
        self.commits.append((batch.committed_us / 1e6, rows, list(batch.places.restored)))
        if rows >= self.rows[-1]:
            self.all_committed.set()

    def feed(self) -> None:
        """Let the files appear, kill executors on the way, and stop the stream when all is committed."""
        try:
            self._feed()
        finally:  # an error, too, ends the stream, whose batches then are fewer than the files
            for query in self.spark.streams.active:
                query.stop()

    def _feed(self) -> None:
        began = time.time()
        workers = itertools.cycle(range(self.cluster.workers))
        for number, file in enumerate(self.files):
            while (now := time.time()) < began + number * LANDS_S:
                if now >= began + UNDISTURBED_S + len(self.killed) * EVERY_S and len(self.killed) < self.case["kills"]:
                    self._kill(next(workers))
                time.sleep(0.02)
            os.utime(file)
            self.landed.append(time.time())
            shutil.move(file, self.source / file.name)
        if not self.all_committed.wait(300):
            raise RuntimeError("five minutes after the last file not all was committed")

    def _kill(self, worker: int) -> None:
        killed = 0
        for process in psutil.Process(self.cluster.pid(f"worker-{worker}")).children():
            with suppress(psutil.ZombieProcess):
                if EXECUTOR in process.cmdline():
                    process.kill()
                    killed += 1
        if killed != 1:
            raise RuntimeError(f"worker {worker} had {killed} executors")
        self.killed.append(time.time())

    def found(self) -> Found:
        """Return the waits of files for their commits, in seconds, and how each kill changed them."""
        at, rows = np.array([c[0] for c in self.commits]), np.array([c[1] for c in self.commits])
        landed = np.array(self.landed)
        waited = at[np.searchsorted(rows, self.rows)] - landed
        # The first half of the undisturbed minute is Java's and the workers' warm-up.
        calm = waited[(landed > self.killed[0] - UNDISTURBED_S / 2) & (landed < self.killed[0])]
        usual = float(np.median(calm))
        kills = []
        for killed, until in itertools.pairwise([*self.killed, landed[-1] + 1]):
            # Those that land right before the next kill wait because of that one.
            of_kill = (landed >= killed - usual) & (landed < until - CALM * usual)
            slow = of_kill & (waited > CALM * usual)
            restored = [shard for moment, _, shards in self.commits if killed <= moment < until for shard in shards]
            kills.append(
                {
                    "at_s": round(killed - landed[0], 1),
                    "next_commit_s": round(float(at[np.searchsorted(at, killed)] - killed), 2),
                    "longest_wait_s": round(float(waited[of_kill].max()), 2),
                    "steady_again_s": round(float((landed + waited)[slow].max() - killed) if slow.any() else 0.0, 2),
                    "restored_shards": len(restored),
                }
            )
        p50, p99 = np.percentile(waited, [50, 99])
        return {
            "seconds": round(float(landed[-1] - landed[0]), 1),
            "events_per_s": round(self.rows[-1] / (landed[-1] - landed[0])),
            "batches": len(self.commits),
            "wait_s": {
                "undisturbed": round(usual, 2),
                "p50": round(float(p50), 2),
                "p99": round(float(p99), 2),
                "max": round(float(waited.max()), 2),
            },
            "kills": kills,
            "landed_s": (landed - landed[0]).round(2).tolist(),
            "waited_s": waited.round(2).tolist(),
        }


def with_kills(case: Found) -> Found:
    """Run a stream whose executors are killed, and compare its sessions with DuckDB's of the same files."""
    with _cluster(case) as cluster:
        spark = open_session(cluster)
        stream = Killing(case, cluster, spark)
        config = _config(case, str(stream.source))
        feeder = threading.Thread(target=stream.feed)
        feeder.start()
        run(spark, config, on_commit=stream.committed)
        feeder.join()
        spark.stop()
    found = stream.found()
    end_sampling(case["home"])
    return found | {"sessions": _equal_sessions(config, case)}


def _equal_sessions(config: Config, case: Found) -> int:
    """Return the number of sessions; RuntimeError if a row is not among those that DuckDB finds, or is missing."""
    spark = build_session("compare", master="local[2]", shuffle_partitions=SHARDS, driver_memory="4g")
    home = Path(case["home"])
    rows = merged_rows(Tables(spark, config.pipeline.warehouse, CHANGELOG))
    rows.select("session_key", "session_start", "session_end", "event_count", "total").write.parquet(str(home / "live"))
    spark.stop()
    ours = f"select * from read_parquet('{home}/live/*.parquet')"
    with duckdb.connect(config={"threads": 2, "temp_directory": str(home / "spilled")}) as db:
        expected = SESSIONS.format(gap=GAP, events=f"{home}/source/*.parquet")
        db.execute(f"create table expected as {expected}")
        db.execute(f"create table ours as {ours}")
        many, more, fewer = db.execute(
            "select (select count(*) from ours), (select count(*) from (from ours except all from expected)),"
            " (select count(*) from (from expected except all from ours))"
        ).fetchall()[0]
    if more or fewer or not many:
        raise RuntimeError(f"{many} sessions, of which {more} are not DuckDB's; {fewer} of DuckDB's are missing")
    return int(many)


def _throughput(work: Path, events: int, batches: int) -> Found:
    folder = work / "events"
    write_events(folder, batches, events, USERS, FILES)
    results = {}
    for workers, cores in LAYOUTS:
        case = {"kind": "on_cluster", "workers": workers, "cores": cores, "events": str(folder)}
        one = summary([measure(this_tree(), case | {"files": FILES, "batches": batches}, work)], events)
        name = f"{workers} x {cores:g} cores"
        results[name] = one
        console.print(f"  {name}: {one['events_per_s']:,} events/s, CPU {one['cpu_s']} s a batch")
    shutil.rmtree(folder)
    return results


def _killed(work: Path, rate: int, minutes: int) -> Found:
    files = int((UNDISTURBED_S + minutes * EVERY_S) / LANDS_S)
    folder = work / "events"
    write_events(folder, files, int(rate * LANDS_S), USERS, 1)
    workers, cores = LAYOUTS[2]
    case = {"kind": "with_kills", "workers": workers, "cores": cores, "events": str(folder), "kills": minutes}
    return measure(this_tree(), case | {"files": 1000}, work, limit_s=3600)


def show(found: Found) -> None:
    if throughput := found.get("throughput"):
        table = Shown("workers x cores", "events/s", "CPU s a batch", title="throughput on a cluster of one machine")
        for name, one in throughput.items():
            table.add_row(name, f"{one['events_per_s']:,}", f"{one['cpu_s']:.2f}")
        console.print(table)
    if killed := found.get("kills"):
        table = Shown("killed at, s", "next commit, s", "longest wait, s", "steady again, s", "shards restored")
        for kill in killed["kills"]:
            table.add_row(*map(str, kill.values()))
        console.print(table)
        again = statistics.median(kill["steady_again_s"] for kill in killed["kills"])
        console.print(
            f"{killed['events_per_s']:,} events/s for {killed['seconds']:.0f} s; a file waits {killed['wait_s']} s for its commit; "
            f"steady again {again:.1f} s after a kill, by the median; {killed['sessions']:,} sessions equal DuckDB's, row by row"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=100_000, help="events a second while executors are killed")
    parser.add_argument("--minutes", type=int, default=10, help="kills, one a minute")
    parser.add_argument("--only", choices=("throughput", "kills"), help="one of the two parts")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the events, and two kills: to try the benchmark itself"
    )
    asked = parser.parse_args()
    scale, minutes = (10, 2) if asked.quick else (1, asked.minutes)
    file = RESULTS / f"cluster-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    found: Found = about((this_tree(),), STREAM_SETTINGS, None) | {"scale": scale}
    with input_folder() as work:
        if asked.only != "kills":
            found["throughput"] = _throughput(work, 400_000 // scale, 12)
            file.write_text(json.dumps(found, indent=1) + "\n")
        if asked.only != "throughput":
            found["kills"] = _killed(work, asked.rate // scale, minutes)
            file.write_text(json.dumps(found) + "\n")
    show(found)
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
