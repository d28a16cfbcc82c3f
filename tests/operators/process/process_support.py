"""A processor's operator and its stores without Spark, batch by batch; and the processors of the tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import Aside, BatchContext, Piece
from sessionlake.local.rows import event_rows
from sessionlake.local.shards import KEY, TIME_US, LocalShards
from sessionlake.operators.process.control import KINDS
from sessionlake.operators.process.mapper import split_rows
from sessionlake.operators.process.operator import Processors
from sessionlake.operators.process.output import OutputColumns
from sessionlake.operators.process.shard import TIMER_LETTER
from sessionlake.operators.process.spec import ProcessSpec, next_state
from sessionlake.operators.process.table import STATES
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Origin
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.stream.control import split_corrections
from sessionlake.stream.ingest import DEAD, EventSpec
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA

Row = Mapping[str, Any]
CLASSES = "tests.operators.process.processors"


class ProcessPipeline:
    """Batches of one processor; rows are dicts with key, time_us, partition (0) and the columns."""

    def __init__(
        self,
        path: Path,
        of: str,
        columns: Mapping[str, pa.DataType],
        output: Mapping[str, str],
        *,
        retention_us: int,
        grace_us: int = 0,
        shards: int = 1,
        max_state_bytes: int = 1 << 20,
        opened: OpenSegments = FileSegments,
        module: str = CLASSES,
    ) -> None:
        types = {**columns, KEY: pa.string(), TIME_US: pa.int64()}
        wanted = EventColumns(KEY, TIME_US, "us", None, tuple(columns), types, ordered=True)
        events = EventSpec(TableDecoder(wanted, None))
        spec = ProcessSpec(
            events, tuple(columns), f"{module}:{of}", OutputColumns(output), retention_us, grace_us, max_state_bytes
        )
        self.operator = Processors(spec)
        self.shards = LocalShards(shards, lambda operator, shard: operator.open_store(path / str(shard), opened))
        self.state: dict[str, Any] = {}
        self.batch_id = 0
        self.sent: list[dict[str, Any]] = []
        self.dead: list[dict[str, Any]] = []
        self.failed_timers: list[dict[str, Any]] = []
        self.states: dict[str, dict[str, Any]] = {}
        self.stats: dict[str, int] = {}

    def batch(
        self, rows: Sequence[Row], *, clock_us: int = 0, tasks: int = 1, corrections: Sequence[Row] = ()
    ) -> list[dict[str, Any]]:
        """Run a batch whose chunks are dealt out to tasks, the last chunk first; return the rows that it sends."""
        operator, spec = self.operator, self.operator.spec
        context = BatchContext(self.batch_id, f"c{self.batch_id}", dict(self.state), clock_us)
        split: list[Piece] = []
        chunks = list(_chunks(rows, tasks))
        for task, (partition, first, part) in reversed(list(enumerate(chunks))):
            decoded = event_rows(spec.events.decoder.columns, part, Origin(partition, (self.batch_id, first, 0)))
            split += split_rows(spec, BatchContext(**{**vars(context), "task": task}), 0, decoded)
        if corrections:
            table = [{"correction_id": str(i), **row} for i, row in enumerate(corrections)]
            table = pa.Table.from_pylist(table, schema=CORRECTIONS_SCHEMA)
            split += split_corrections(KINDS, operator.limits(context), table)
        results, self.stats = self.shards.run(operator, split, context)
        self.state = next_state(spec, self.state, self.stats)
        self.batch_id += 1
        sent = [row for result in results for row in _plain(result.changes)]
        asides = [piece.rows for piece in split if isinstance(piece, Aside) and piece.kind == DEAD]
        letters = [result.side[DEAD] for result in results if DEAD in result.side]
        for letter in (row for table in [*asides, *letters] for row in _plain(table)):
            (self.failed_timers if letter["kind"] == TIMER_LETTER else self.dead).append(letter)
        for result in results:
            for row in _plain(result.side[STATES.output]) if STATES.output in result.side else ():
                key = row["process_state_key"]
                self.states.pop(key, None)
                if row["op"] == "upsert":
                    self.states[key] = row
        self.sent += sent
        return sent

    def lose_stores(self) -> None:
        """Restore every store from the states' changelog, as after the loss of its disk."""
        rows = [
            {
                "key": key,
                "touched_us": row["touched_at"],
                "position": row["position"],
                "ordinal": row["ordinal"],
                "entries": row["entries"],
                "timers": row["timers"],
            }
            for key, row in self.states.items()
        ]
        context = BatchContext(self.batch_id, "", dict(self.state))
        self.shards.restore(self.operator, pa.Table.from_pylist(rows, schema=STATES.restored_schema()), context)

    def stored(self) -> dict[str, bytes]:
        """Return the states that the stores have, packed."""
        stores = [self.shards.store(self.operator, shard) for shard in range(self.shards.shards)]
        return {key: state.packed() for store in stores for key, state in store.scan()}

    def index(self) -> list[bytes]:
        """Return the entries of the stores' indexes of timers."""
        stores = [self.shards.store(self.operator, shard) for shard in range(self.shards.shards)]
        return sorted(entry for store in stores for entry in store.entries())

    def close(self) -> None:
        """Release the stores."""
        self.shards.close()


def _chunks(rows: Sequence[Row], tasks: int) -> list[tuple[int, int, list[tuple[int, Row]]]]:
    """Return the rows of each partition, in up to `tasks` chunks: partition, first place, rows with their places."""
    found = []
    for partition in sorted({row.get("partition", 0) for row in rows}):
        own = [(i, row) for i, row in enumerate(rows) if row.get("partition", 0) == partition]
        size = -(-len(own) // tasks)
        found += [(partition, first, own[first : first + size]) for first in range(0, len(own), size)]
    return found


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with times in microseconds."""
    return table.cast(pa.schema([pa.field(f.name, _numbers(f.type)) for f in table.schema])).to_pylist()


def _numbers(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_numbers(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _numbers(f.type)) for f in type_])
    return pa.int64() if pa.types.is_timestamp(type_) else type_
