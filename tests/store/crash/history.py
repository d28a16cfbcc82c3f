"""One history of a store beside a dict: steps and faults that all follow from a seed."""

import gc
import random
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from sessionlake.errors import CorruptionError, StoreError
from sessionlake.store import files, levels, runs
from sessionlake.store.directory import remove_store
from sessionlake.store.files import FileSegments
from sessionlake.store.secondary import SecondarySegments
from tests.store.crash.disk import AFTER, IO_ERROR, KILL, NO_SPACE, Disk, KilledError

Rows = dict[int, dict[bytes, bytes]]
STEPS = {
    "write": 30,
    "drop": 3,
    "look": 8,
    "range": 8,
    "reopen": 6,
    "fail": 22,
    "fail_opening": 4,
    "fail_reading": 3,
    "fail_clearing": 2,
    "lose_power": 3,
    "swap": 1,
    "read_beside": 3,
    "clear": 1,
}
"""Steps and their weights."""


class WrongError(Exception):
    """The store is no commit of the dict, or is called damaged though nobody has damaged it."""


class History:
    """A store and the states that it may be in, by commit: the last one, and after a fault the one that was being written."""

    def __init__(self, seed: int, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.chance, self.log = random.Random(seed), list[str]()
        self.path, self.disk = root / "p" / "0", Disk(root, random.Random(~seed))
        self.commits: dict[bytes | None, Rows] = {None: {}}
        self.last: bytes | None = None
        self._number, self._cost = 0, 20
        self._small(patch)
        self.disk.patched(patch)
        names = range(self.chance.choice((3, 20, 200)))
        self.names = [*(b"%d" % name for name in names), b"", b"\0", b"\xff" * 3, b"a" * 300]

    def _small(self, patch: pytest.MonkeyPatch) -> None:
        """Draw sizes at which merges are at work nearly always."""
        choice = self.chance.choice
        patch.setattr(levels, "FAN", choice((2, 3, 4, 8)))
        patch.setattr(levels, "_LEAST_STEP", choice((1, 2, 7, 64)))
        patch.setattr(levels, "_FIRST_PIECE", choice((1, 3, 256)))
        patch.setattr(levels, "_FEW", choice((0, 64)))
        patch.setattr(levels, "STEP_BYTES", choice((500, 20_000, 32 << 20)))
        patch.setattr(files, "_RUN_BYTES", choice((1, 40, 2000, 64 << 20)))
        patch.setattr(runs, "_PAGE", choice((64, 512, 1 << 15)))
        files._warm.clear()

    def run(self) -> None:
        """Take all steps."""
        self._open({None})
        for _ in range(self.chance.randrange(5, 120)):
            (step,) = self.chance.choices([*STEPS], [*STEPS.values()])
            self.log.append(step)
            getattr(self, f"_{step}")()
        self.db.close()

    def _open(self, may_be: Collection[bytes | None], *, may_be_damaged: bool = False) -> None:
        """Open the store; it must be at one of some commits, or is removed as the engine does if it may be damaged."""
        try:
            self.db = FileSegments(self.path)
            found = self.db.meta("commit")
            if found not in may_be:
                raise WrongError(f"the store is at {found!r}, and not at one of {may_be}")
            self._same(self.commits[found])
        except CorruptionError as error:
            if not may_be_damaged:
                raise WrongError(f"called damaged: {error}") from error
            self._kill()
            remove_store(self.path)
            self.db, found = FileSegments(self.path), None
            self.commits[None] = {}
        self.last, self.commits = found, {found: self.commits[found]}
        there = {file.name for file in self.path.iterdir()} - {"CURRENT", "IDENTITY", "LOCK", "SESSIONLAKE"}
        if there != self.db._state.files:
            raise WrongError(f"files {there}, and {self.db._state.files} count")

    def _kill(self) -> None:
        """Let the process go: its locks, and perhaps what it had mapped."""
        if hasattr(self, "db"):
            self.db._release()
            del self.db
        gc.collect(0)
        self.disk.disarm()
        if self.chance.random() < 0.5:
            files._warm.clear()

    def _same(self, rows: Rows) -> None:
        """Compare all that is stored, and the look-ups of some keys."""
        if self.db.segments != sorted(rows):
            raise WrongError(f"segments {self.db.segments}, not {sorted(rows)}")
        for number, values in rows.items():
            if self.db.items(number) != sorted(values.items()):
                raise WrongError(f"segment {number} has other rows")
            some = self.chance.sample(self.names, min(len(self.names), self.chance.choice((1, 4, 100))))
            if self.db.get(number, some) != [values.get(key) for key in some]:
                raise WrongError(f"segment {number} has other values of {some}")

    def _writes(self) -> tuple[dict[int, tuple[pa.Array, pa.Array]], bytes]:
        """Draw writes; `commits` gets the rows after them."""
        self._number += 1
        rows, out = {n: dict(of) for n, of in self.commits[self.last].items()}, {}
        for number in self.chance.sample(range(-1, 4), self.chance.choice((0, 1, 1, 2))):
            values = self._values()
            out[number] = (pa.array(values, pa.binary()), pa.array(values.values(), pa.binary()))
            merged = {**rows.get(number, {}), **values}
            rows[number] = {key: value for key, value in merged.items() if value is not None}
        commit = b"c%d" % self._number
        self.commits[commit] = rows
        return out, commit

    def _values(self) -> dict[bytes, bytes | None]:
        choice = self.chance.choice
        most, size, gone = choice((2, 30, 200)), choice((0, 3, 60, 3000)), choice((0, 0.2, 1))
        keys = self.chance.sample(self.names, self.chance.randrange(min(len(self.names), most) + 1))
        return {
            key: None if self.chance.random() < gone else self.chance.randbytes(self.chance.randrange(size + 1))
            for key in (sorted(keys) if self.chance.random() < 0.5 else keys)
        }

    def _write(self) -> None:
        out, commit = self._writes()
        count = self.disk.count
        self.db.write(out, {"commit": commit})
        self._cost = self.disk.count - count
        self.last, self.commits = commit, {commit: self.commits[commit]}
        self._same(self.commits[commit])

    def _drop(self) -> None:
        number, rows = self.chance.randrange(-1, 5), self.commits[self.last]
        self.db.drop_before(number)
        self.commits[self.last] = {n: values for n, values in rows.items() if n >= number}
        self._same(self.commits[self.last])

    def _look(self) -> None:
        some = self.chance.sample(self.names, self.chance.randrange(1, len(self.names) + 1))
        for number, values in self.commits[self.last].items():
            if self.db.find(number, pa.array(some, pa.binary())).to_pylist() != [values.get(key) for key in some]:
                raise WrongError(f"segment {number} has other values of {some}")

    def _range(self) -> None:
        bounds = (None, self.chance.choice(self.names), self.chance.randbytes(2))
        low, high, limit = self.chance.choice(bounds), self.chance.choice(bounds), self.chance.choice((None, 0, 1, 5))
        for number, values in self.commits[self.last].items():
            keys = [key for key in sorted(values) if (low or b"") <= key and (high is None or key <= high)]
            found = [key for key, _ in self.db.items(number, low, high, limit)]
            back = [
                key
                for rows in self.db._state.segments[number].items(low, high, limit, backward=True)
                for key in rows.keys.to_pylist()[::-1]
            ]
            if (found, back) != (keys[:limit], keys[::-1][:limit]):
                raise WrongError(f"segment {number} has other keys from {low!r} to {high!r}, limit {limit}")

    def _reopen(self) -> None:
        self.db.close()
        self._open({self.last})

    def _clear(self) -> None:
        self.db.clear()
        self.last, self.commits = None, {None: {}}
        self._same({})

    def _read_beside(self) -> None:
        view = SecondarySegments(self.path)
        for number, values in self.commits[self.last].items():
            if view.meta("commit") != self.last or [*view.items(number)] != sorted(values.items()):
                raise WrongError(f"a reader sees another segment {number}")

    def _fail(self) -> None:
        """Write, and let an operation of it fail. The store is as it was before, or as the write has it."""
        out, commit = self._writes()
        before, ended = self.last, False
        self.disk.arm(
            self.chance.randrange(2 + self._cost), self.chance.choice((KILL, KILL, IO_ERROR, NO_SPACE, AFTER))
        )
        with self._faults():
            self.db.write(out, {"commit": commit})
            ended = True
        if not self.disk.is_dead and not ended and self.chance.random() < 0.3:
            self._write_after_all(out, commit)
            ended = True
        self._ended()
        self._open({commit} if ended else {before, commit})

    def _write_after_all(self, out: dict[int, tuple[pa.Array, pa.Array]], commit: bytes) -> None:
        """An open store takes the write that has failed, once there is no fault any more."""
        self.disk.disarm()
        self.db.write(out, {"commit": commit})
        self._same(self.commits[commit])

    def _fail_opening(self) -> None:
        self.db.close()
        del self.db
        self.disk.arm(self.chance.randrange(25), self.chance.choice((KILL, IO_ERROR)))
        with self._faults():
            self.db = FileSegments(self.path)
        self._ended()
        self._open({self.last})

    def _fail_reading(self) -> None:
        """A read that fails is an error, and no other answer."""
        self.db.close()
        files._warm.clear()
        self._open({self.last})
        self.disk.arm(self.chance.randrange(10), IO_ERROR)
        with self._faults():
            self._same(self.commits[self.last])
        self.disk.disarm()

    def _fail_clearing(self) -> None:
        """Wherever a store's clearing ends, it is whole or empty."""
        self.disk.arm(self.chance.randrange(12), self.chance.choice((KILL, IO_ERROR, AFTER)))
        with self._faults():
            self.db.clear()
        self._ended()
        self.commits[None] = {}
        self._open({self.last, None})

    def _lose_power(self) -> None:
        """Of what was written lately any part is lost: a commit, or damage that is found."""
        since = self.disk.count
        for _ in range(self.chance.choice((1, 1, 3))):
            out, self.last = self._writes()
            self.db.write(out, {"commit": self.last})
        self._kill()
        files._warm.clear()
        self.disk.lose_power(since)
        self._open({*self.commits}, may_be_damaged=True)

    def _swap(self) -> None:
        """A whole file in another one's place is damage."""
        names = sorted(self.db._state.files)
        if len(names) < 2 or self.path.joinpath(names[0]).read_bytes() == self.path.joinpath(names[-1]).read_bytes():
            return
        self.db.close()
        shutil.copyfile(self.path / names[0], self.path / names[-1])
        with suppress(CorruptionError):
            FileSegments(self.path).close()
            raise WrongError(f"{names[0]} is taken for {names[-1]}")
        self._open({self.last}, may_be_damaged=True)

    def _faults(self) -> "_Faults":
        return _Faults(self.disk)

    def _ended(self) -> None:
        """Close the store, as the engine does after any error, or let it go with its process."""
        if self.disk.is_dead or not hasattr(self, "db"):
            self._kill()
        else:
            self.disk.disarm()
            self.db.close()


class _Faults:
    """Takes the errors that a fault may have, of which damage is none."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if isinstance(error, CorruptionError):
            raise WrongError(f"{self._disk.failed}: called damaged: {error}") from error
        return isinstance(error, StoreError | KilledError)
