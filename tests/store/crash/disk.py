"""A disk that fails: each file operation below one folder is counted, and the n-th one from now on fails, or ends the process."""

import errno
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

KILL, IO_ERROR, NO_SPACE, AFTER = "kill", "EIO", "ENOSPC", "error after the deed"
_TAKES_SPACE = ("open", "write", "write_bytes", "replace")
_MAY_HAPPEN = ("replace", "unlink", "write_bytes")
"""Operations that may have happened although they are told to have failed."""


class KilledError(BaseException):
    """The process is gone: nothing catches it, and no operation works any more."""


class Disk:
    """The operations below `root`, once `patched`."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._root, self._chance = str(root), chance
        self.count = 0
        """Operations so far."""
        self._left: int | None = None
        self._how = KILL
        self.failed: str | None = None
        """What has failed since `arm`."""
        self.is_dead = False
        self.unsynced: dict[str, int] = {}
        """The files that were written, none of which is forced to the disk, with the number of the operation."""

    def arm(self, left: int, how: str) -> None:
        """Let the operation after some others fail."""
        self._left, self._how, self.failed = left, how, None

    def disarm(self) -> None:
        """Let all work again, as a new process finds it."""
        self._left, self.is_dead = None, False

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        """Take over the functions by which the store touches files."""
        for owner, name in (
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "rmdir"),
            (Path, "read_bytes"),
            (Path, "iterdir"),
            (pa, "memory_map"),
            (os, "open"),
        ):
            patch.setattr(owner, name, self._passing(name, getattr(owner, name)))
        patch.setattr(Path, "open", self._opening(Path.open))
        patch.setattr(Path, "write_bytes", self._writing(Path.write_bytes, Path.open))
        patch.setattr(Path, "write_text", lambda path, text: path.write_bytes(text.encode()))

    def _passing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def passed(path: Any, *args: Any, **named: Any) -> Any:
            if name == "replace" and str(path) in self.unsynced:
                self.unsynced[str(args[0])] = self.unsynced.pop(str(path))
            return self._hit(name, path, lambda: function(path, *args, **named))

        return passed

    def _opening(self, open_: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Path, mode: str = "r", *args: Any, **named: Any) -> Any:
            if not str(path).startswith(self._root) or "x" not in mode:
                return open_(path, mode, *args, **named)
            file = self._hit("open", path, lambda: open_(path, mode, *args, **named))
            self.unsynced[str(path)] = self.count
            return _Torn(file, path, self)

        return opened

    def _writing(self, write: Callable[..., Any], open_: Callable[..., Any]) -> Callable[..., Any]:
        def written(path: Path, data: bytes) -> Any:
            if not str(path).startswith(self._root):
                return write(path, data)
            self.unsynced[str(path)] = self.count
            try:
                return self._hit("write_bytes", path, lambda: write(path, data))
            except (OSError, KilledError):
                if self._how != AFTER and self._chance.random() < 0.7:
                    with open_(path, "wb") as file:
                        file.write(data[: self._chance.randrange(len(data) + 1)])
                raise

        return written

    def _hit(self, name: str, path: Any, deed: Callable[[], Any]) -> Any:
        """Do an operation, or fail before or after it."""
        if not str(path).startswith(self._root):
            return deed()
        if self.is_dead:
            raise KilledError
        self.count += 1
        if self._left is None:
            return deed()
        self._left -= 1
        if self._left >= 0:
            return deed()
        self._left, self.failed = None, f"{self._how} at {name} of {Path(str(path)).name}"
        return self._fail(name, deed)

    def _fail(self, name: str, deed: Callable[[], Any]) -> None:
        if self._how == KILL:
            if self._chance.random() < 0.5:
                deed()
            self.is_dead = True
            raise KilledError
        if self._how == AFTER and name in _MAY_HAPPEN:
            deed()
        number = errno.ENOSPC if self._how == NO_SPACE and name in _TAKES_SPACE else errno.EIO
        raise OSError(number, os.strerror(number))

    def torn(self, path: Path, data: Any, write: Callable[[Any], int]) -> int:
        """Write some bytes: all, a part, which is no error, or a part before the operation fails."""
        some = memoryview(data).cast("B")
        if len(some) > 64 and self._chance.random() < 0.3:
            some = some[: self._chance.randrange(1, len(some))]
        try:
            return int(self._hit("write", path, lambda: write(some)))
        except (OSError, KilledError):
            if len(some) > 1 and self._chance.random() < 0.7:
                write(some[: self._chance.randrange(1, len(some))])
            raise

    def lose_power(self, since: int) -> None:
        """Let each file written since an operation be whole, empty, cut off, or have zeros."""
        for name in [name for name, at in self.unsynced.items() if at >= since and os.path.exists(name)]:  # noqa: PTH110
            size, lost = os.path.getsize(name), self._chance.choice(("whole", "whole", "empty", "cut", "zeros"))  # noqa: PTH202
            if lost in ("empty", "cut"):
                os.truncate(name, self._chance.randrange(size) if size and lost == "cut" else 0)
            elif lost == "zeros" and size:
                with open(name, "r+b") as file:  # noqa: PTH123 (`Path.open` is patched)
                    file.seek(at := self._chance.randrange(size))
                    file.write(bytes(min(size - at, self._chance.choice((1, 512, 4096)))))


class _Torn(io.RawIOBase):
    """A file whose writes pass through a disk."""

    def __init__(self, file: Any, path: Path, disk: Disk) -> None:
        self._file, self._path, self._disk = file, path, disk

    def write(self, data: Any) -> int:
        return self._disk.torn(self._path, data, self._file.write)

    def close(self) -> None:
        self._file.close()
        super().close()
