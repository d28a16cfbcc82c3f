"""One shard's part of a batch, in a Python worker: two-phase commit of its store around the operator's computation."""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine import exchange, failpoints
from sessionlake.engine.operator import BatchContext, Inputs, Operator, ShardResult
from sessionlake.engine.outputs import CHANGES, Output, write_output
from sessionlake.errors import StoreError
from sessionlake.store_path import expanded, remove_store

COMMIT = "commit_id"
NEW, KEPT, RESTORED = "new", "kept", "restored"
"""What a shard task found: a shard that no batch has touched, its store as it left it, none (so that it was restored)."""
PENDING, FORGET = ".pending", ".forget"
"""Suffixes beside a store: of the directory of `Pending`, and of a job's request that store and pending writes go."""
_BASE = b"base"
_LOCK_SECONDS = 20


@dataclass(frozen=True)
class ShardTask:
    """What every shard task of a batch attempt is told."""

    operator: Operator
    context: BatchContext
    outputs: tuple[Output, ...]
    store_dir: str
    expected: tuple[str | None, ...]
    """Per shard: the commit_id that its store must be at; None where no batch has touched it."""
    restoring: frozenset[int] = frozenset()
    """Shards whose state is handed in, to replace whatever their store holds."""
    restore_schema: pa.Schema | None = None
    """Schema of the handed-in state: a shard that has none gets no rows of kind `restore`."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the reports of the shards among the wire rows (one in a Spark partition)."""
        for shard, inputs in sorted(exchange.read_wire(batches).items()):
            yield from self._run_shard(shard, inputs)

    def _run_shard(self, shard: int, inputs: Inputs) -> Iterator[pa.RecordBatch]:
        path = Path(expanded(self.store_dir)) / str(shard)
        pending = Pending(path.with_suffix(PENDING))
        _forget(path, pending)
        store = self._open(path)
        try:
            state = self._prepare(shard, inputs, store, pending)
            if state is None:
                yield exchange.report_batch(exchange.STALE, str(shard).encode())
                return
            result = self.operator.apply(inputs, store, self.context)
            if result.needs is None and result.writes is not None:
                pending.write(self.context.commit_id, _commit_of(store), result.writes)
        finally:
            store.close()
        failpoints.hit("worker_computed")
        if result.needs is not None:
            yield exchange.report_batch(exchange.NEEDS, exchange.to_payload(result.needs))
        else:
            yield exchange.report_batch(exchange.DONE, self._written(shard, result, state))

    def _open(self, path: Path) -> Any:
        """Open a shard's store; one that is damaged is removed, and so will be found stale and restored.

        On a host with several executors a task that Spark has given up may hold the store for a moment still.
        """
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                return self.operator.open_store(path)
            except StoreError as error:
                if "/LOCK: " not in str(error):
                    shutil.rmtree(path, ignore_errors=True)
                    return self.operator.open_store(path)
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _written(self, shard: int, result: ShardResult, state: str) -> bytes:
        """Write what the shard puts out; return its report."""
        marks = {"batch_id": self.context.batch_id, "commit_id": self.context.commit_id}
        tables = {CHANGES: result.changes, **result.side}
        files = [
            asdict(write_output(output, tables[output.kind], marks, shard))
            for output in self.outputs
            if output.kind in tables and tables[output.kind].num_rows
        ]
        report = {
            "shard": shard,
            "touched": result.writes is not None,
            "stats": dict(result.stats),
            "files": files,
            "executor": _executor_of_this(),
            "store": state,
        }
        return json.dumps(report).encode()

    def _prepare(self, shard: int, inputs: Inputs, store: Any, pending: "Pending") -> str | None:
        """Bring the store to the expected commit and say how; None where it can't be: then its state must be handed in."""
        expected = self.expected[shard]
        if shard in self.restoring:
            store.clear()
            pending.clear()
            if expected is not None:
                if self.restore_schema is not None:
                    inputs = {"restore": self.restore_schema.empty_table(), **inputs}
                self.operator.commit(
                    store, self.operator.restored(inputs, store), {COMMIT: expected.encode()}, self.context
                )
            return NEW if expected is None else RESTORED
        current = _commit_of(store)
        if current == expected:
            pending.clear()
            return NEW if expected is None else KEPT
        writes = pending.read(expected, current) if expected else None
        if expected is None or writes is None:
            return None
        self.operator.commit(store, writes, {COMMIT: expected.encode()}, self.context)
        failpoints.hit("worker_applied")
        pending.clear()
        return KEPT


def _executor_of_this() -> str:
    """Return what tells executors apart: the host, and the process that forks the executor's Python workers."""
    return f"{socket.gethostname()}/{os.getppid()}"


def _forget(path: Path, pending: "Pending") -> None:
    """Remove a store beside which a job has left a marker: it holds bytes of what must be erased, and is restored.

    The marker goes last: StoreError where anything stays.
    """
    marker = path.with_suffix(FORGET)
    if marker.exists():
        remove_store(path)
        pending.clear()
        marker.unlink(missing_ok=True)


def _commit_of(store: Any) -> str | None:
    commit = store.meta(COMMIT)
    return commit.decode() if commit else None


class Pending:
    """Writes of batches that may or may not be committed, one file a commit_id, beside the store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, commit_id: str, base: str | None, writes: pa.Table) -> None:
        """Write the file durably: it is whole or absent. `base` is the store's commit that the writes build on."""
        schema = writes.schema.with_metadata({_BASE: (base or "").encode()})
        self._directory.mkdir(parents=True, exist_ok=True)
        temporary = self._directory / f"{commit_id}.{os.getpid()}.tmp"
        with temporary.open("wb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                writer.write_table(writes.cast(schema))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path(commit_id))

    def read(self, commit_id: str, base: str | None) -> pa.Table | None:
        """Return the writes of a commit for a store at `base`; None where there are none that can be read whole."""
        try:
            with pa.memory_map(str(self._path(commit_id))) as source:
                writes = pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid):
            return None
        return writes if (writes.schema.metadata or {}).get(_BASE) == (base or "").encode() else None

    def clear(self) -> None:
        """Remove all files."""
        remove_store(self._directory)

    def _path(self, commit_id: str) -> Path:
        return self._directory / f"{commit_id}.arrow"
