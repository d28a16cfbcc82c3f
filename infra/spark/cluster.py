"""A Spark standalone cluster on the loopback address: a master and workers, a process each. `make cluster` runs this file."""

import argparse
import ctypes
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Self

START_S = 60
STOP_S = 4.0
STORE_VARIABLE = "SESSIONLAKE_STORE"
"""What each worker's executors have in their environment: a directory of its own, as a disk of its own would be."""
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_MASTER_READY = re.compile(r"Starting Spark master at (spark://\S+)")
_MASTER_UI = re.compile(r"Bound MasterWebUI to \S+, and started at (http://\S+)")
_WORKER_READY = re.compile(r"Successfully registered with master")
_AUTHENTICATED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass
class Cluster:
    """A master and its workers, each worker with its own folder for work, shuffles and stores.

    On Linux they end with the thread that started them, and the executors with their worker: none is left behind.
    """

    folder: Path
    workers: int = 2
    cores: int = 1
    memory: str = "1g"
    """Of each worker: what its executors may take."""
    port: int = 0
    """The master's; 0 for a free one."""
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """What drivers must know to be let in; daemons and executors get it by their environment, never on a command line."""
    url: str = field(default="", init=False)
    ui: str = field(default="", init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)

    def start(self) -> Self:
        """Return once all workers are registered; RuntimeError with the end of a log where one is not."""
        try:
            self._start("master", _MASTER, "--port", str(self.port))
            self.url = self._wait("master", _MASTER_READY)[1]
            self.ui = self._wait("master", _MASTER_UI)[1]
            self._write_properties()
            names = [f"worker-{number}" for number in range(self.workers)]
            for name in names:
                self._start_worker(name)
            for name in names:
                self._wait(name, _WORKER_READY)
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def properties(self) -> Path:
        """The file of settings for spark-submit --properties-file: this user's alone, since it holds the secret."""
        return self.folder / "spark.properties"

    def settings(self) -> dict[str, str]:
        """Return what a driver needs to be let in."""
        return {
            "spark.master": self.url,
            **_AUTHENTICATED,
            "spark.authenticate.secret": self.secret,
            "spark.io.encryption.enabled": "true",
        }

    def _write_properties(self) -> None:
        self.properties.unlink(missing_ok=True)
        self.properties.touch(mode=0o600)
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings().items()))

    def pid(self, name: str) -> int:
        """Return the process of `master` or `worker-<n>`."""
        return self._processes[name].pid

    def log(self, name: str) -> Path:
        """What a process printed."""
        return self.folder / f"{name}.log"

    def stop(self) -> None:
        """Stop all, the workers first: they stop their executors."""
        for process in reversed(self._processes.values()):
            process.terminate()
        until = time.monotonic() + STOP_S
        for process in reversed(self._processes.values()):
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _end_group(process.pid)
        self._processes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_worker(self, name: str) -> None:
        own = self.folder / name
        own.mkdir(parents=True, exist_ok=True)
        env = {"SPARK_LOCAL_DIRS": str(own / "local"), STORE_VARIABLE: str(own / "store")}
        size = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(own / "work")]
        self._start(name, _WORKER, "--port", "0", *size, self.url, **env)

    def _start(self, name: str, role: str, *arguments: str, **env: str) -> None:
        home = Path(os.environ.get("SPARK_HOME") or find_spec("pyspark").submodule_search_locations[0])  # type: ignore[union-attr,index]
        command = [str(home / "bin" / "spark-class"), role, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        # Daemons of a moment: they start in half the time like this.
        daemon = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        daemon["_SPARK_AUTH_SECRET"] = self.secret
        authenticated = " ".join(f"-D{name}={value}" for name, value in _AUTHENTICATED.items())
        # A REST server would want a port of its own, and knows no secrets.
        daemon["SPARK_MASTER_OPTS"] = f"-Dspark.master.rest.enabled=false {authenticated}"
        daemon["SPARK_WORKER_OPTS"] = authenticated
        python = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env={**os.environ, **daemon, **python, **env},
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (sets one flag; no lock is taken)
                start_new_session=True,
            )

    def _wait(self, name: str, sign: re.Pattern[str]) -> re.Match[str]:
        until = time.monotonic() + START_S
        while True:
            text = self.log(name).read_text(errors="replace")
            found = sign.search(text)
            if found:
                return found
            if self._processes[name].poll() is not None or time.monotonic() > until:
                tail = "\n".join(text.splitlines()[-15:])
                raise RuntimeError(f"spark: the {name} did not start, see {self.log(name)}:\n{tail}")
            time.sleep(0.05)


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_group(leader: int) -> None:
    """End what is left of a process's group: executors of a worker that was killed, not stopped."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".cluster").absolute(), help="logs, work and stores")
    parser.add_argument("--port", type=int, default=7077, help="of the master")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="2g", help="of each worker")
    a = parser.parse_args()
    cluster = Cluster(a.folder, a.workers, a.cores, a.memory, a.port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        sys.stdout.write(
            f"spark: --master {cluster.url} --properties-file {cluster.properties}, web UI {cluster.ui}; {a.workers} workers of {a.cores} cores and {a.memory}; "
            f"logs, work and stores (${STORE_VARIABLE}) in {a.folder}; ctrl-C stops it\n"
        )
        sys.stdout.flush()
        signal.pause()
    except RuntimeError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.stderr.write(f"spark: stopped; logs, work and stores stay in {a.folder}\n")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
