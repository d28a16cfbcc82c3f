"""An S3 server on loopback: moto, in an environment of its own, since its libraries would hold back the project's."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

ROOT = Path(__file__).parents[2]
MOTO = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")


@contextmanager
def s3_server(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the environment in which S3 is this server, with a bucket `lake`."""
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    python = folder / "moto" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", str(python.parents[1])], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *MOTO], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "moto.log").open("wb") as log:
        command = [str(python.parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(port, server)
        env = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SESSIONLAKE_S3_PATH_STYLE": "true",
        }
        S3FileSystem(
            access_key="test",
            secret_key="test",  # noqa: S106
            region="us-east-1",
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            allow_bucket_creation=True,
        ).create_dir("lake")
        yield {**os.environ, **env}
    finally:
        server.terminate()
        server.wait()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("moto did not start")
