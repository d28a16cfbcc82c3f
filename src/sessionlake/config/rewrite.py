"""The edit of a config's file in place."""

import os
from collections.abc import Callable
from pathlib import Path


def rewrite(path: str | Path, content: bytes, before: Callable[[], None] = lambda: None) -> None:
    """Write a file's new content in the place of the old one, whole or not at all; permissions and links stay. `before` is called as the last step before."""
    file = Path(path).resolve()
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(file.stat().st_mode & 0o7777)
        before()
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
