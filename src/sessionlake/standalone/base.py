"""What the standalone operators share: batches of one message or many, replays, outputs, and the flush of everything at once."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.config.durations import MINUTE_US, parse_duration
from sessionlake.engine.operator import Aside, BatchContext, Counted, Piece, ShardResult, add_stats
from sessionlake.errors import BackPressureError, ConfigError, StoreError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Origin, Rows
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.record_columns import OFFSET, PARTITION
from sessionlake.standalone.columns import Types, declared_types, types_in, types_of
from sessionlake.standalone.gathered import Gathered
from sessionlake.standalone.kernels import Kernel
from sessionlake.standalone.outbox import Downstream, Outbox
from sessionlake.standalone.rows import Row, event_rows, plain_rows, table_rows
from sessionlake.standalone.saved import NAME, opened_database, read_saved
from sessionlake.standalone.shards import LocalShards
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, DROP, EventSpec
from sessionlake.stream.outputs import LATE
from sessionlake.warehouse.schemas import PARTLY

COUNTS = ("input", "accepted", "late", "partly_late", "dead", "dropped")
"""What `counts` has, beside `replayed`: input = accepted + late + dead + dropped."""
Positions: TypeAlias = Sequence[int] | Ints | pa.Array
Messages: TypeAlias = Sequence[Row] | pa.Table
_NEVER = -(1 << 62)
_PARTITIONS = 1 << 22
"""Positions of so many, 2^40 each, fit an int64."""
_K = TypeVar("_K", bound=Kernel[Any])


@dataclass(frozen=True)
class Chunk:
    """Messages of one partition of an input, in their order."""

    name: str
    """The input's."""
    partition: int
    rows: Rows


@dataclass(frozen=True)
class Judgement:
    """Which messages are refused, whatever the operator computes of them; as in a pipeline."""

    beyond_retention: str
    max_future_skew_us: int

    @classmethod
    def of(cls, beyond_retention: str, max_future_skew: str | None, skew_us: int) -> Self:
        """Return what arguments say; `skew_us` is what the operator takes where they say nothing, a minute at least."""
        if beyond_retention not in (DEAD_LETTER, DROP):
            raise ConfigError(f"beyond_retention: {beyond_retention!r} is unknown; write {DEAD_LETTER} or {DROP}")
        given = None if max_future_skew is None else parse_duration(max_future_skew, "max_future_skew")
        return cls(beyond_retention, max(skew_us, MINUTE_US) if given is None else given)

    def events(self, columns: EventColumns, *, archive: bool = False) -> EventSpec:
        """Return an input with these columns."""
        return EventSpec(TableDecoder(columns, None), self.beyond_retention, self.max_future_skew_us, archive)


class Standalone(ABC, Generic[_K]):
    """An operator on one directory, for one thread of one process.

    What is added lies in memory until it is flushed: a crash, and `close`, go back to the last flush, and what was added since
    is to be added again, from behind `positions()` on. Only where outputs are offered downstream are they flushed by
    themselves, once all of a call were taken.

    With `batch` above 1 messages that are added one at a time are gathered until they are so many, and then computed as one
    batch, as the rows of a table are; every other call computes those that are gathered first.
    """

    def __init__(
        self,
        directory: str | Path,
        definition: Mapping[str, Any],
        schema: Mapping[str, str] | None,
        downstream: Downstream | None,
        batch: int,
        judged: "Judgement",
    ) -> None:
        self._judged = judged
        if batch < 1:
            raise ConfigError(f"batch: {batch!r} is no number of messages; write 1 or more")
        path, self._declared = Path(directory), declared_types(schema)
        self._where, self._outbox = str(path), Outbox(downstream)
        self._counts = dict.fromkeys((*COUNTS, "replayed"), 0)
        self._batch, self._gathered = batch, Gathered()
        self._segments = opened_database(path)
        self._is_open = True
        try:
            self._saved = read_saved(self._segments, path, definition)
            self._last = {name: dict(each) for name, each in self._saved.positions.items()}
            self._types = self._saved.known_types()
            self._check_schema()
            self._kernel: _K = self._made(self._types)
            self._shards = LocalShards[Any](1, lambda *_: self._kernel.opened(lambda _: self._segments.part(0)))
        except BaseException:
            self._segments.close()
            raise

    @abstractmethod
    def _made(self, types: Mapping[str, Types]) -> _K:
        """Return the operator, given by input the types beside the declared ones; a column without is taken for whole numbers."""

    def _keep(self, chunks: Sequence[Chunk], pieces: Sequence[Sequence[Piece]]) -> None:
        """Keep messages of a batch, beside what the operator's store has of them; `pieces` are what became of each chunk."""

    def timeout(self, clock_us: int | None = None) -> bool:
        """Send what is due by the clock, microseconds, by default the system's; say whether nothing waits to be taken.

        What downstream has refused is offered first, from where it stopped; while it is refused nothing else happens.
        """
        self._require_open()
        self._compute_gathered()
        if self._outbox.is_waiting and not self._offered():
            return False
        self._run(self._clock(clock_us), [], {}, [[Counted({})]])
        return self._offered(always=True)

    def get_result(self) -> list[dict[str, Any]]:
        """Return copies of the outputs since the last flush, or, with a downstream, of those that it has not taken yet."""
        self._settle()
        return self._outbox.waiting_outputs()

    def late(self) -> list[dict[str, Any]]:
        """Return copies of the late messages since the last call of `flush`, but those that `downstream.late` has taken."""
        self._settle()
        return [dict(row) for row in self._outbox.late]

    def dead(self) -> list[dict[str, Any]]:
        """Return `message` and `reason` of those refused since the last `flush`, but those that `downstream.error` has taken."""
        self._settle()
        return [dict(row) for row in self._outbox.dead]

    def flush(self) -> None:
        """Write all that was added to disk, in one batch, and forget the outputs: fetch them before.

        BackPressureError where downstream has not taken them: what is on disk is never ahead of it.
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
        """How many messages came in since it was opened, and what became of them; replays are counted apart."""
        self._settle()
        return dict(self._counts)

    def close(self) -> None:
        """Release the directory. What was not flushed is gone, but with a downstream, where all is flushed that it has taken."""
        if not self._is_open:
            return
        try:
            if self._outbox.is_automatic:
                self._settle()
                if not self._outbox.is_waiting:
                    self._persist()
        finally:
            self._gathered = Gathered()
            self._is_open = False
            self._shards.close()
            self._segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add_one(self, name: str, message: Row, position: int | None, partition: int, clock_us: int | None) -> None:
        """Add a message to an input: at once, or with those that are gathered once these are a batch."""
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
        """Compute what is gathered, if anything, as one batch; where that fails, none of it is added."""
        gathered, self._gathered = self._gathered, Gathered()
        if not len(gathered):
            return
        chunks = [
            Chunk(name, partition, event_rows(self._kernel.columns(name), some, Origin(partition, (0, 0, 0))))
            for (name, partition), some in gathered.parted()
        ]
        self._add(chunks, gathered.messages, gathered.clock_us)
        for (name, partition), position in gathered.last.items():
            self._last[name] = {**self._last.get(name, {}), str(partition): position}

    def _settle(self) -> None:
        """Compute what is gathered, and offer what it gives: whatever is asked for knows all that was added."""
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
        of = _numbers("partitions", partitions, len(table))
        at = None if positions is None else _numbers("positions", positions, len(table))
        last = self._last.get(name, {})
        known = np.unique(of).tolist()
        for partition in (known[:1], known[-1:]):
            _check_partition(*partition or [0])
        places = {p: np.flatnonzero(of == p) for p in known}
        if at is not None:
            places = {p: _fresh(rows, at[rows], last.get(str(p), _NEVER)) for p, rows in places.items()}
        fresh = sum(len(rows) for rows in places.values())
        self._counts["replayed"] += len(table) - fresh
        if not fresh:
            return
        if name not in self._types:
            self._learn(name, types_of(table))
        columns, placed = self._kernel.columns(name), _placed(table, of, at)
        chunks = [
            Chunk(name, p, table_rows(columns, placed, rows, Origin(p, (0, 0, 0))))
            for p, rows in places.items()
            if len(rows)
        ]
        self._add(chunks, {name: table}, clock_us)
        if at is not None:
            newest = {str(p): int(at[rows].max()) for p, rows in places.items() if len(rows)}
            self._last[name] = {**last, **newest}
        self._send()

    def _learn(self, name: str, given: Types) -> None:
        """Fix the types of an input's columns by its first message; ConfigError where one has no value to tell it by.

        A message without a key or a time fixes none: it is refused.
        """
        kernel = self._made({**self._types, name: given})
        columns = kernel.columns(name)
        if not given.keys() >= {c for c in (columns.key, *columns.further_keys, columns.time) if c is not None}:
            return
        known = {*given, *self._declared, PARTITION, OFFSET}
        untold = [column for column in columns.needed if column not in known]
        if untold:
            raise ConfigError(
                f"schema: {untold[0]!r} has no value in the first message to tell its type by; "
                f"write schema={{{untold[0]!r}: 'double'}}, or what it is"
            )
        self._kernel, self._types = kernel, {**self._types, name: {n: columns.types[n] for n in columns.needed}}
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
        clock = self._clock(clock_us)
        context = self._context(clock)
        pieces = [list(self._kernel.split(context, chunk.name, i, chunk.rows)) for i, chunk in enumerate(chunks)]
        self._run(clock, chunks, given, pieces)

    @property
    def _store(self) -> Any:
        return self._shards.store(self._kernel.operator, 0)

    def _context(self, clock_us: int) -> BatchContext:
        number = self._saved.batches
        return BatchContext(number, f"c{number}", self._saved.state, clock_us)

    def _run(
        self,
        clock_us: int,
        chunks: Sequence[Chunk],
        given: Mapping[str, Messages],
        pieces: Sequence[Sequence[Piece]],
    ) -> None:
        """Compute a batch, and take what it writes, and its outputs."""
        split = [piece for some in pieces for piece in some]
        results, stats = self._shards.run(self._kernel.operator, split, self._context(clock_us))
        state = self._kernel.next_state(self._saved.state, stats)
        self._keep(chunks, pieces)
        self._saved = replace(self._saved, state=state, batches=self._saved.batches + 1, clock_us=clock_us)
        add_stats(self._counts, {n: stats[n] for n in COUNTS if n in stats})
        outputs = [row for result in results if len(result.changes) for row in plain_rows(result.changes)]
        late, dead = ([self._named(given, row) for row in _told(split, results, kind)] for kind in (LATE, DEAD))
        reasons = [row["reason"] for row in _told(split, results, DEAD)]
        refused = [{"message": row, "reason": reason} for row, reason in zip(dead, reasons, strict=True)]
        self._outbox.put(outputs, late, refused)

    @staticmethod
    def _named(given: Mapping[str, Messages], told: Row) -> dict[str, Any]:
        """Return the message that a row of late events or dead letters is of; of several inputs with its side."""
        name, place = told.get("side") or next(iter(given)), int(told["source"])
        of = given[name]
        message = of.slice(place, 1).to_pylist()[0] if isinstance(of, pa.Table) else dict(of[place])
        return {**message, "side": name} if told.get("side") else message

    def _send(self) -> None:
        """Offer what a call gave."""
        if not self._offered():
            raise BackPressureError(
                "downstream: it took no more outputs; the message is taken, and what is left waits for timeout",
                taken=True,
            )

    def _offered(self, *, always: bool = False) -> bool:
        """Offer what waits; flush where something was, and all of it was taken. Without a downstream nothing happens."""
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
            raise StoreError(f"directory: {self._where!r} is closed; open it anew")

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
    """Return a table with the columns of a topic's place, where it has none of its own."""
    places = {PARTITION: partitions, OFFSET: pa.nulls(len(table), pa.int64()) if positions is None else positions}
    for name, values in places.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array(values))
    return table


def _check_partition(partition: int) -> None:
    if not 0 <= partition < _PARTITIONS:
        raise ConfigError(f"partition: {partition} is no number of a partition; write one from 0 to {_PARTITIONS - 1}")


def _fresh(rows: Ints, positions: Ints, last: int) -> Ints:
    """Return the rows whose position lies above the last one and all before."""
    reached = np.maximum.accumulate(np.concatenate([[last], positions]))[:-1]
    return rows[positions > reached]


def _told(pieces: Sequence[Piece], results: Sequence[ShardResult], kind: str) -> list[dict[str, Any]]:
    """Return the rows of late events or dead letters of a batch, by the place of their messages; not those that are accepted, too."""
    tables = [piece.rows for piece in pieces if isinstance(piece, Aside) and piece.kind == kind]
    tables += [result.side[kind] for result in results if kind in result.side]
    names = ("source", "reason", "side", PARTLY)
    rows = [r for t in tables for r in t.select([n for n in names if n in t.column_names]).to_pylist()]
    return sorted((row for row in rows if not row.get(PARTLY)), key=lambda row: int(row["source"]))
