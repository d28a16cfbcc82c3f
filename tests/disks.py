"""File systems of their own, which can be full."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk(path: Path, megabytes: int) -> Iterator[Path]:
    """Mount an empty file system of a size at a path, which need not exist; skip the test where none can be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path, leave_bytes: int) -> Path:
    """Fill a file system but for some bytes; return the file that does."""
    file = path / "other"
    file.write_bytes(bytes(shutil.disk_usage(path).free - leave_bytes))
    return file
