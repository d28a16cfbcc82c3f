"""A real PostgreSQL server of the machine's own packages, in a folder, that listens on a socket there and on no network."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg

START_S, STOP_S = 60, 10.0
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_SETTINGS = ("-c", "listen_addresses=", "-c", "fsync=on", "-c", "max_connections=40")


def find_server() -> Path | None:
    """Return the directory of the server's programs; None if the machine has none."""
    on_path = shutil.which("postgres")
    found = [Path(on_path).parent] if on_path else []
    found += [path for place in _PLACES for path in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


@dataclass
class Server:
    """A server in a folder; it can be killed and started again there. Its one user is `test`, who needs no password."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"postgresql://test@/postgres?host={self.folder}"

    def start(self) -> Self:
        """Return once the server answers; RuntimeError with its log's end if it ends instead."""
        programs = find_server()
        if programs is None:
            raise RuntimeError("no PostgreSQL server on this machine")
        data = self.folder / "data"
        if not data.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._give_away(self.folder)
            made = ("--auth", "trust", "--username", "test", "--encoding", "UTF8", "--locale", "C", "--no-sync")
            subprocess.run([programs / "initdb", "-D", data, *made], check=True, capture_output=True, **self._user())
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", self.folder, *_SETTINGS],
                stdout=log,
                stderr=log,
                **self._user(),
            )
        until = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.folder / "postgres.log").read_text()[-2000:])
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """Kill the server and its children at once, as a machine that fails."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(STOP_S)
            self._process = None

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_S)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _user() -> dict[str, str]:
        """Return as whom it runs: a server refuses to be root."""
        return {"user": "nobody"} if sys.platform == "linux" and os.geteuid() == 0 else {}

    def _give_away(self, folder: Path) -> None:
        if self._user():
            shutil.chown(folder, "nobody")
            for parent in folder.parents:
                if parent.stat().st_mode & 0o001 == 0:
                    parent.chmod(parent.stat().st_mode | 0o011)
