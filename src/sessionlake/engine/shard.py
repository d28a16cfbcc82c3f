"""A shard's part of a batch, in a Python worker: two-phase commit of its store around the operator's computation."""

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_hexdigest

from sessionlake.config.paths import expanded
from sessionlake.config.store_engines import FILES, StoreEngine
from sessionlake.engine import exchange, failpoints
from sessionlake.engine.handed import HandedIn
from sessionlake.engine.operator import BatchContext, Inputs, Operator, ShardResult, applied, reported
from sessionlake.engine.outputs import CHANGES, REPLACED, Output, write_output
from sessionlake.engine.pending import CORRUPT, FORGOTTEN, PENDING, Pending, remove_marked
from sessionlake.errors import CorruptionError, LayoutError, StoreError, StoreHeldError
from sessionlake.store.api import ShardStore
from sessionlake.store.directory import remove_store
from sessionlake.store.engines import opened_by
from sessionlake.store.segmented import WRITE_SCHEMA

COMMIT, SHARD = "commit_id", "shard"
"""A store's metadata: its commit, and its shard's number, which stores of earlier releases may lack."""
NEW, KEPT, RESTORED = "new", "kept", "restored"
"""The state of a store at the start of a shard task: no batch has touched the shard, the store is as the last task left it,
or there was no usable store and it was restored."""
MISSING, STALE, LAYOUT = "missing", "stale", "layout"
CAUSES = (MISSING, CORRUPT, STALE, FORGOTTEN, LAYOUT)
"""Why a store had to be restored: there was none, its bytes were damaged, it was not at the expected commit, a job had
asked for its removal, or its content has another layout."""
_MOST_VALUE_BYTES = 256_000_000
"""The bytes that a key's value may have in a store. A batch and a merge take it whole into memory, several times."""
_LOCK_SECONDS = 20
_WRITTEN_AT_A_TIME = 500_000
"""The number of writes of a restore that are applied together.

For example, to apply four million writes at once (two for each row) used 1,000 MB more memory than the 2,184 MB of the
process, and 2.5 s more of 11 s."""


class _StaleError(Exception):
    """A store is not at the expected commit; the message is the cause."""


@dataclass(frozen=True)
class ShardTask:
    """The settings of every shard task of a batch attempt."""

    operator: Operator[Any]
    context: BatchContext
    outputs: tuple[Output, ...]
    store_dir: str
    expected: tuple[str | None, ...]
    """Each shard's required commit_id of the store; None if no batch has touched it."""
    restoring: frozenset[int] = frozenset()
    """Shards whose store is replaced by the received stored state."""
    cursors: tuple[Mapping[str, Any], ...] = ()
    """Per shard what its last task left for the next; empty if nothing was left."""
    store_engine: StoreEngine = FILES

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the reports of the shards among the wire rows (a single shard in a Spark partition)."""
        with closing(HandedIn(Path(expanded(self.store_dir)))) as handed:
            for shard, inputs in sorted(exchange.read_wire(batches, handed.take).items()):
                for report in exchange.reports_among(inputs):
                    yield exchange.report_batch(exchange.SPLIT, report)
                if inputs:
                    yield from self.run_shard(shard, inputs, handed.parts(shard))

    def run_shard(self, shard: int, inputs: Inputs, handed: Iterable[pa.Table] = ()) -> Iterator[pa.RecordBatch]:
        """Yield a shard's report; `handed` is its stored state for a restore, in parts of other keys each."""
        path = Path(expanded(self.store_dir)) / str(shard)
        pending = Pending(path.with_suffix(PENDING))
        # The supplied state may be older than a removal marker: then the store is removed before another batch uses it.
        marked = None if shard in self.restoring else remove_marked(path)
        try:
            result, state = self._computed(shard, inputs, handed, path, pending)
        except CorruptionError as error:
            pending.clear()
            _remove(path)
            cause = LAYOUT if isinstance(error, LayoutError) else CORRUPT
            yield exchange.stale_report(shard, cause)
        except _StaleError as stale:
            yield exchange.stale_report(shard, marked or str(stale))
        else:
            failpoints.hit("worker_computed")
            if result.needs is not None:
                yield exchange.report_batch(exchange.NEEDS, exchange.to_payload(result.needs))
            else:
                yield exchange.report_batch(exchange.DONE, self._written(shard, result, state))

    def _computed(
        self, shard: int, inputs: Inputs, handed: Iterable[pa.Table], path: Path, pending: Pending
    ) -> tuple[ShardResult, str]:
        """Return the operator's result for the shard, and the state of its store (NEW, KEPT or RESTORED).

        Raises _StaleError, or CorruptionError if the store is damaged. In both cases the shard needs its stored state.
        """
        store = self._open(shard, path)
        try:
            state = self._prepare(shard, handed, store, pending)
            cursor = self.cursors[shard] if self.cursors else {}
            result = applied(self.operator, inputs, store, replace(self.context, cursor=cursor))
            if result.needs is None and result.writes is not None:
                _require_storable(shard, result.writes)
                pending.write(self.context.commit_id, _commit_of(store), result.writes)
        finally:
            store.close()
        return result, state

    def _open(self, shard: int, path: Path) -> ShardStore:
        """Open a shard's store; a damaged store is removed first if its state is supplied.

        On a host with several executors a task that Spark has given up may still hold the store for a short time.
        """
        until = time.monotonic() + _LOCK_SECONDS
        may_remove = shard in self.restoring
        while True:
            try:
                return self.operator.open_store(path, opened_by(self.store_engine))
            except CorruptionError:
                if not may_remove:
                    raise
                _remove(path)
                may_remove = False
            except StoreHeldError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _written(self, shard: int, result: ShardResult, state: str) -> bytes:
        """Write the shard's output rows to files; return its report."""
        marks = {"batch_id": self.context.batch_id, "commit_id": self.context.commit_id}
        tables = {CHANGES: result.changes, **result.side}
        if result.replaced is not None:
            tables[REPLACED] = result.replaced
        files = [
            asdict(write_output(output, tables[output.kind], marks, shard))
            for output in self.outputs
            if output.kind in tables and tables[output.kind].num_rows
        ]
        report = {
            "shard": shard,
            "touched": result.writes is not None,
            **reported(result.stats),
            "files": files,
            "cursor": result.cursor,
            "executor": _executor_of_this(),
            "store": state,
        }
        return json.dumps(report).encode()

    def _prepare(self, shard: int, handed: Iterable[pa.Table], store: ShardStore, pending: Pending) -> str:
        """Bring the store to the expected commit and say how; _StaleError if it can't be."""
        expected = self.expected[shard]
        if shard in self.restoring:
            store.clear()
            pending.clear()
            if expected is not None:
                self._restore(store, handed, _marks(shard, expected))
            return NEW if expected is None else RESTORED
        current = _commit_of(store)
        if not _is_of(store, shard):
            raise _StaleError(STALE)
        if current == expected:
            pending.clear()
            if expected is None and not store.is_empty:
                # A restore of another warehouse's shard was killed here.
                store.clear()
            return NEW if expected is None else KEPT
        writes = pending.read(expected, current) if expected else None
        if expected is None or writes is None:
            raise _StaleError(MISSING if current is None else STALE)
        self.operator.commit(store, writes, _marks(shard, expected), self.context)
        failpoints.hit("worker_applied")
        pending.clear()
        return KEPT

    def _restore(self, store: ShardStore, handed: Iterable[pa.Table], marks: dict[str, bytes]) -> None:
        """Load handed-in state. The last commit brings the id: a store that lacks it is restored again."""
        for number, rows in enumerate(handed):
            for writes in self.operator.restored(rows, store, number):
                for first in range(0, len(writes), _WRITTEN_AT_A_TIME):
                    self.operator.commit(store, writes.slice(first, _WRITTEN_AT_A_TIME), {}, self.context)
                    failpoints.hit("worker_restoring")
        self.operator.commit(store, WRITE_SCHEMA.empty_table(), marks, self.context)


def _remove(path: Path) -> None:
    """Remove a store, once a task that Spark has given up has let it go."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            remove_store(path)
        except StoreHeldError as held:
            if time.monotonic() > until:
                # Not the damage, or the other layout, for which it is removed, is the error of the batch.
                raise held from None
            time.sleep(0.05)
        else:
            return


def _executor_of_this() -> str:
    """Return this executor's name: its host, and the process that forks its Python workers."""
    return f"{socket.gethostname()}/{os.getppid()}"


def _require_storable(shard: int, writes: pa.Table) -> None:
    """Raise StoreError if a value is too large for a store: before the batch's commit, after which its writes must be applied."""
    if "value" not in writes.schema.names or writes.nbytes <= _MOST_VALUE_BYTES:
        return
    sizes = pc.binary_length(writes["value"])
    if (most := pc.max(sizes).as_py() or 0) > _MOST_VALUE_BYTES:
        key = writes["key"][pc.index(sizes, most).as_py()].as_py()
        raise StoreError(
            f"store: one key of shard {shard} (xxh64 of its stored key: {xxh64_hexdigest(key)}) needs {most / 1e6:,.0f} MB in one "
            f"segment, and {_MOST_VALUE_BYTES / 1e6:,.0f} are the most; use aggregates of bounded size, end its rows "
            "earlier (a shorter gap, window or retention), or leave the key out by event.where"
        )


def _marks(shard: int, commit_id: str) -> dict[str, bytes]:
    """Return the metadata of a shard's store at a commit."""
    return {COMMIT: commit_id.encode(), SHARD: str(shard).encode()}


def _is_of(store: ShardStore, shard: int) -> bool:
    """Say whether a store belongs to a shard: a batch's commit id is the same in all shards, so it is not enough."""
    return store.meta(SHARD) in (None, str(shard).encode())


def _commit_of(store: ShardStore) -> str | None:
    commit = store.meta(COMMIT)
    return commit.decode() if commit else None
