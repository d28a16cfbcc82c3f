"""A real Kafka broker on the loopback address: one process, KRaft, a data folder of its own. `make kafka` runs this file."""

import argparse
import ctypes
import signal
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sessionlake.errors import SessionlakeError
from sessionlake.jars import cached, load_list
from sessionlake.jars.java import java_command

HERE = Path(__file__).resolve().parent
JARS = HERE / "jars.toml"
STARTED = "Kafka Server started"
START_S = 60
STOP_S = 4.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

# Without end of retention: records of examples and tests have old times, and Kafka removes those after seven days.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable={auto_create}
num.partitions=2
log.retention.ms=-1
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Broker:
    """A broker in a folder; it can be killed and started again there, on the same port.

    On Linux it ends with the thread that started it, so that none is left behind.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    auto_create: bool = False
    """Whether a topic comes into being when it is first written to."""
    java: tuple[str, ...] = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    """Java's flags. With these it starts in 3 s rather than 5, in 200 MB; a broker for throughput wants others."""
    _controller_port: int = field(default_factory=free_port, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What the broker printed since its last start."""
        return self.folder / "kafka.log"

    def start(self) -> Self:
        """Return once the broker serves; RuntimeError with its log's end where it ends instead."""
        properties = self.folder / "server.properties"
        data = self.folder / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        properties.write_text(
            PROPERTIES.format(
                port=self.port,
                controller_port=self._controller_port,
                data=data,
                auto_create=str(self.auto_create).lower(),
            )
        )
        if not (data / "meta.properties").exists():
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # As one argument: an id may begin with a hyphen.
            formatting = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)]
            done = subprocess.run(self._command(*formatting), capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"kafka: can't format {data}: {done.stdout}{done.stderr}")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(properties)),
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (sets one flag; no lock is taken)
                start_new_session=True,
            )
        self._wait(self._process)
        return self

    def stop(self, patience: float | None = None) -> None:
        """Stop as an operator does; after so many seconds as a power cut does."""
        self._end(signal.SIGTERM, patience)

    def kill(self) -> None:
        """Stop as a power cut does."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_S
        while STARTED not in self.log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > until:
                self.kill()
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
                raise RuntimeError(f"kafka: the broker did not start, see {self.log}:\n{tail}")
            time.sleep(0.05)

    def _command(self, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}"
        return [java_command(), *self.java, logging, "-cp", f"{cached(load_list(str(JARS)))}/*", *arguments]

    def _end(self, how: signal.Signals, patience: float | None = None) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def die_with_parent() -> None:
    """Let the process that is about to start end with the thread that starts it; on Linux only."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=HERE.parents[1] / ".kafka" / "broker", help="where its data lies"
    )
    parser.add_argument("--port", type=int, default=9092)
    arguments = parser.parse_args()
    broker = Broker(arguments.folder, arguments.port, auto_create=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        broker.start()
        sys.stdout.write(
            f"kafka: bootstrap_servers = {broker.bootstrap_servers!r}; data and log in {arguments.folder}; ctrl-C stops it\n"
        )
        sys.stdout.flush()
        signal.pause()
    except (RuntimeError, SessionlakeError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        broker.stop(STOP_S)
        sys.stderr.write(f"kafka: stopped; its data stay in {arguments.folder}\n")


if __name__ == "__main__":
    main()
