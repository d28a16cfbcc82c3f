"""The base of the standalone operators: batches of one message or many, replays, outputs, and one flush of everything."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.engine.operator import Operator, Piece, add_stats
from sessionlake.errors import BackPressureError, ConfigError, StoreError
from sessionlake.local.columns import Types, declared_types, types_in, types_of
from sessionlake.local.rows import Row, event_rows, plain_rows, table_rows
from sessionlake.local.shards import LocalShards
from sessionlake.local.stream import LocalBatch, LocalStream
from sessionlake.sources.decoding.decoded import plain
from sessionlake.sources.decoding.rows import Origin, Rows
from sessionlake.sources.record_columns import OFFSET, PARTITION
from sessionlake.standalone.batching import MessageBatch
from sessionlake.standalone.checkpoint import NAME, opened_database, read_checkpoint
from sessionlake.standalone.outbox import Downstream, Outbox
from sessionlake.store.buffered import Part
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.outputs import LATE
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.schemas import PARTLY

COUNTS = ("input", "accepted", "late", "partly_late", "dead", "dropped", "filtered", "duplicate")
"""The names in `counts`, besides `replayed`: input = accepted + late + dead + dropped + filtered + duplicate."""
Positions: TypeAlias = Sequence[int] | Ints | pa.Array
Messages: TypeAlias = Sequence[Row] | pa.Table
_NEVER = -(1 << 62)
_ANYWHERE = Path()
"""The path of a store whose database is open already."""
_PARTITIONS = 1 << 22
"""The most partitions: with 2^40 positions each, all positions fit an int64."""
_O = TypeVar("_O", bound=Operator[Any])


@dataclass(frozen=True)
class Chunk:
    """Messages of one partition of an input, in their order."""

    name: str
    """The input's."""
    partition: int
    rows: Rows


class Standalone(ABC, Generic[_O]):
    """An operator on one directory, for one thread of one process.

    Added messages lie in memory until they are flushed: a crash, and `close`, go back to the last flush, and messages added since
    is to be added again, from behind `positions()` on. Only if outputs are offered downstream are they flushed by
    themselves, once all of a call were taken.

    With `batch` above 1, messages that are added one at a time are gathered until there are `batch` of them, and then computed as one
    batch, as the rows of a table are; every other call computes those that are gathered first.
    """

    _of: Changelog | None = None
    """The changelog whose key columns outputs have besides the key; None if the key is one column."""

    def __init__(
        self,
        directory: str | Path,
        define: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        schema: Mapping[str, str] | None,
        downstream: Downstream | None,
        batch: int,
    ) -> None:
        if batch < 1:
            raise ConfigError(f"batch: {batch!r} is no number of messages; write 1 or more")
        path, self._declared = Path(directory), declared_types(schema)
        self._where, self._outbox = str(path), Outbox(downstream)
        self._counts = dict.fromkeys((*COUNTS, "replayed"), 0)
        self._batch, self._gathered = batch, MessageBatch()
        self._segments = opened_database(path)
        self._is_open = True
        try:
            self._saved = read_checkpoint(self._segments, path, define)
            self._last = {name: dict(each) for name, each in self._saved.positions.items()}
            self._types = self._saved.known_types()
            self._check_schema()
            self._operator: _O = self._build(self._types)
            shards = LocalShards[Any](1, lambda operator, _: self._opened(operator, self._segments.part(0)))
            self._stream = LocalStream(shards, state=self._saved.state, batches=self._saved.batches)
        except BaseException:
            self._segments.close()
            raise

    @abstractmethod
    def _build(self, types: Mapping[str, Types]) -> _O:
        """Return the operator for the known column types by input. A column without a type, known or declared, has whole numbers."""

    def _opened(self, operator: Operator[Any], part: Part) -> Any:
        """Return the operator's store in its part of the directory's database."""
        return operator.open_store(_ANYWHERE, lambda _: part)

    def _keep(self, chunks: Sequence[Chunk], pieces: Sequence[Sequence[Piece]], before: Mapping[str, Any]) -> None:
        """Keep messages of a batch after a state; `pieces` are those of each chunk."""

    def timeout(self, clock_us: int | None = None) -> bool:
        """Send the outputs that are due by the clock, microseconds, by default the system's; return whether no output waits any more.

        Outputs that downstream has refused are offered first, in order. As long as it refuses them nothing else happens.
        """
        self._require_open()
        self._compute_gathered()
        if self._outbox.is_waiting and not self._offered():
            return False
        self._run(self._clock(clock_us), [], {})
        return self._offered(always=True)

    def get_result(self) -> list[dict[str, Any]]:
        """Return copies of the outputs since the last flush; with a downstream, of the outputs not taken yet."""
        self._settle()
        return self._outbox.waiting_outputs()

    def late(self) -> list[dict[str, Any]]:
        """Return copies of the late messages since the last `flush`, except messages taken by `downstream.late`."""
        self._settle()
        return [dict(row) for row in self._outbox.late]

    def dead(self) -> list[dict[str, Any]]:
        """Return `message` and `reason` of messages refused since the last `flush`, except messages taken by `downstream.error`."""
        self._settle()
        return [dict(row) for row in self._outbox.dead]

    def flush(self) -> None:
        """Write all added messages to disk, in one batch, and forget the outputs: fetch them before.

        BackPressureError if downstream has not taken them: the state on disk is never ahead of it.
        """
        self._require_settled()
        if self._outbox.is_waiting:
            raise BackPressureError(
                "flush: downstream has not taken all outputs; call timeout until it has", taken=False
            )
        self._persist()
        self._outbox.clear()

    @property
    def counts(self) -> dict[str, int]:
        """How many messages came in since it was opened, by outcome; replays are counted separately."""
        self._settle()
        return dict(self._counts)

    def close(self) -> None:
        """Release the directory. Unflushed messages are lost, unless a downstream has taken all outputs: then they are flushed first."""
        if not self._is_open:
            return
        try:
            if self._outbox.is_automatic:
                self._settle()
                if not self._outbox.is_waiting:
                    self._persist()
        finally:
            self._gathered = MessageBatch()
            self._is_open = False
            self._stream.close()
            self._segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add_one(self, name: str, message: Row, position: int | None, partition: int, clock_us: int | None) -> None:
        """Add a message to an input: at once, or with the gathered messages once they are a batch."""
        self._require_ready()
        _check_partition(partition)
        last = self._gathered.last.get((name, partition), self._last.get(name, {}).get(str(partition), _NEVER))
        if position is not None and position <= last:
            self._counts["replayed"] += 1
            return
        if name not in self._types:
            self._learn(name, types_in(message))
        self._gathered.put(name, partition, message, position, self._clock(clock_us))
        if len(self._gathered) >= self._batch:
            self._compute_gathered()
            self._send()

    def _compute_gathered(self) -> None:
        """Compute the gathered messages, if any, as one batch. If it fails, no message is added."""
        gathered, self._gathered = self._gathered, MessageBatch()
        if not len(gathered):
            return
        chunks = [
            Chunk(name, partition, event_rows(self._operator.columns(name), some, Origin(partition, (0, 0, 0))))
            for (name, partition), some in gathered.parted()
        ]
        self._add(chunks, gathered.messages, gathered.clock_us)
        for (name, partition), position in gathered.last.items():
            self._last[name] = {**self._last.get(name, {}), str(partition): position}

    def _settle(self) -> None:
        """Compute the gathered messages, and offer the outputs: a query sees all added messages."""
        if len(self._gathered):
            self._compute_gathered()
            self._offered()

    def _add_table(
        self,
        name: str,
        table: pa.Table,
        positions: Positions | None,
        partitions: Positions | int,
        clock_us: int | None,
    ) -> None:
        """Add the rows of a table to an input, as one batch."""
        self._require_settled()
        self._require_ready()
        partition_of = _numbers("partitions", partitions, len(table))
        position_of = None if positions is None else _numbers("positions", positions, len(table))
        last = self._last.get(name, {})
        known = np.unique(partition_of).tolist()
        for partition in (known[:1], known[-1:]):
            _check_partition(*partition or [0])
        places = {p: np.flatnonzero(partition_of == p) for p in known}
        if position_of is not None:
            places = {p: _fresh(rows, position_of[rows], last.get(str(p), _NEVER)) for p, rows in places.items()}
        fresh = sum(len(rows) for rows in places.values())
        self._counts["replayed"] += len(table) - fresh
        if not fresh:
            return
        if name not in self._types:
            self._learn(name, types_of(table))
        columns, placed = self._operator.columns(name), _placed(table, partition_of, position_of)
        chunks = [
            Chunk(name, p, table_rows(columns, placed, rows, Origin(p, (0, 0, 0))))
            for p, rows in places.items()
            if len(rows)
        ]
        self._add(chunks, {name: table}, clock_us)
        if position_of is not None:
            newest = {str(p): int(position_of[rows].max()) for p, rows in places.items() if len(rows)}
            self._last[name] = {**last, **newest}
        self._send()

    def _learn(self, name: str, given: Types) -> None:
        """Fix an input's column types by the first message; ConfigError for a column without a value.

        A message without a key or a time fixes none: it is refused.
        """
        operator = self._build({**self._types, name: given})
        columns = operator.columns(name)
        own = {c for c in (columns.key, *columns.further_keys, columns.time) if c is not None}
        if not given.keys() >= own - columns.computed.keys():
            return
        known = {*given, *self._declared, PARTITION, OFFSET}
        untold = [column for column in columns.needed if column not in known]
        if untold:
            raise ConfigError(
                f"schema: {untold[0]!r} has no value in the first message that would show its type; "
                f"write schema={{{untold[0]!r}: 'double'}}, or another type"
            )
        self._operator, self._types = operator, {**self._types, name: {n: columns.types[n] for n in columns.needed}}
        self._saved = self._saved.with_types(name, self._types[name])

    def _check_schema(self) -> None:
        for types in self._types.values():
            for name, type_ in types.items():
                if self._declared.get(name, type_) != type_:
                    raise ConfigError(
                        f"schema: {name!r} is {self._declared[name]}, and was {type_} in {self._where!r}; "
                        "open it with that, or choose another directory"
                    )

    def _add(self, chunks: Sequence[Chunk], given: Mapping[str, Messages], clock_us: int | None) -> None:
        self._run(self._clock(clock_us), chunks, given)

    @property
    def _store(self) -> Any:
        return self._stream.stores(self._operator)[0]

    def _run(self, clock_us: int, chunks: Sequence[Chunk], given: Mapping[str, Messages]) -> None:
        """Compute a batch, and take its writes and its outputs."""
        before = self._stream.state
        batch = self._stream.run(self._operator, clock_us, [(chunk.name, chunk.rows) for chunk in chunks])
        self._keep(chunks, batch.pieces, before)
        state, batches = self._stream.state, self._stream.batches
        self._saved = replace(self._saved, state=state, batches=batches, clock_us=clock_us)
        add_stats(self._counts, {n: batch.stats[n] for n in COUNTS if n in batch.stats})
        changes = [result.changes for result in batch.results if len(result.changes)]
        outputs = [row for some in changes for row in plain_rows(some, self._of)]
        late, refused = (_rows_aside(batch, kind) for kind in (LATE, DEAD))
        self._outbox.put(
            outputs,
            [self._named(given, row) for row in late],
            [{"message": self._named(given, row), "reason": row["reason"]} for row in refused],
        )

    @staticmethod
    def _named(given: Mapping[str, Messages], row: Row) -> dict[str, Any]:
        """Return the message of a row in late events or dead letters; with its side if there are several inputs."""
        name, place = row.get("side") or next(iter(given)), int(row["source"])
        messages = given[name]
        if isinstance(messages, pa.Table):
            # Not to_pylist: the message may be refused because Python has no date for its time.
            message = {column: plain(messages.column(column)[place]) for column in messages.column_names}
        else:
            message = dict(messages[place])
        return {**message, "side": name} if row.get("side") else message

    def _send(self) -> None:
        """Offer the outputs of a call."""
        if not self._offered():
            raise BackPressureError(
                "downstream: it took no more outputs; the message is taken, and the remaining outputs wait for timeout",
                taken=True,
            )

    def _offered(self, *, always: bool = False) -> bool:
        """Offer the waiting outputs; flush if there were some and all were taken. Without a downstream nothing happens."""
        offering = always or self._outbox.is_waiting
        if not self._outbox.deliver():
            return False
        if self._outbox.is_automatic and offering:
            self._persist()
        return True

    def _persist(self) -> None:
        self._saved = replace(self._saved, positions={name: dict(each) for name, each in self._last.items()})
        self._segments.flush({NAME: self._saved.to_bytes()})

    def _clock(self, clock_us: int | None) -> int:
        given = time.time_ns() // 1000 if clock_us is None else clock_us
        return given if self._saved.clock_us is None else max(given, self._saved.clock_us)

    def _positions(self, name: str) -> dict[int, int]:
        return {int(p): last for p, last in self._saved.positions.get(name, {}).items()}

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreError(f"directory: {self._where!r} is closed; open it again")

    def _require_settled(self) -> None:
        self._require_open()
        self._settle()

    def _require_ready(self) -> None:
        self._require_open()
        if self._outbox.is_waiting:
            raise BackPressureError(
                "downstream: outputs wait to be taken; the message is not taken: call timeout until they are, then add it again",
                taken=False,
            )


def _numbers(name: str, given: Positions | int, rows: int) -> Ints:
    """Return a number a row."""
    if isinstance(given, int):
        return np.full(rows, given, np.int64)
    found = np.asarray(given, np.int64)
    if len(found) != rows:
        raise ConfigError(f"{name}: {len(found)} are given for {rows} messages; give one for each")
    return found


def _placed(table: pa.Table, partitions: Ints, positions: Ints | None) -> pa.Table:
    """Return a table with the columns of a record's place in a topic; existing columns stay."""
    places = {PARTITION: partitions, OFFSET: pa.nulls(len(table), pa.int64()) if positions is None else positions}
    for name, values in places.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array(values))
    return table


def _check_partition(partition: int) -> None:
    if not 0 <= partition < _PARTITIONS:
        raise ConfigError(f"partition: {partition} is no number of a partition; write one from 0 to {_PARTITIONS - 1}")


def _fresh(rows: Ints, positions: Ints, last: int) -> Ints:
    """Return the rows with a position above `last` and above all earlier positions."""
    reached = np.maximum.accumulate(np.concatenate([[last], positions]))[:-1]
    return rows[positions > reached]


def _rows_aside(batch: LocalBatch, kind: str) -> list[dict[str, Any]]:
    """Return a batch's late events or dead letters, by message place; not partly late events, which are accepted."""
    names = ("source", "reason", "side", PARTLY)
    rows = [r for t in batch.tables(kind) for r in t.select([n for n in names if n in t.column_names]).to_pylist()]
    return sorted((row for row in rows if not row.get(PARTLY)), key=lambda row: int(row["source"]))
