"""One map task's part of a batch, in a Python worker.

It turns source rows into rows for shards, and writes rows that need no shard to files.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.engine import exchange
from sessionlake.engine.operator import TICK, Aside, BatchContext, Counted, Everywhere, Operator, add_stats, reported
from sessionlake.engine.outputs import Output, OutputWriter


@dataclass(frozen=True)
class SplitTask:
    """The settings of every map task of a batch attempt."""

    operator: Operator[Any]
    context: BatchContext
    outputs: tuple[Output, ...]
    shards: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield wire rows for the shards; the last of them is this task's report, if there is anything to report.

        The file of an attempt that fails, or that Spark runs a second time, is named by no commit; VACUUM removes it.
        """
        number = _number_of_this()
        outputs = {output.kind: output for output in self.outputs}
        writers: dict[str, OutputWriter] = {}
        marks = {"batch_id": self.context.batch_id, "commit_id": self.context.commit_id}
        stats: dict[str, int] = {}
        everywhere: dict[str, list[pa.Table]] = {}
        for part, batch in enumerate(batches):
            context = replace(self.context, task=number, part=part)
            for piece in self.operator.split(pa.Table.from_batches([batch]), context):
                if isinstance(piece, Counted):
                    add_stats(stats, piece.stats)
                elif isinstance(piece, Aside):
                    if piece.rows.num_rows:
                        if piece.kind not in writers:
                            writers[piece.kind] = OutputWriter(outputs[piece.kind], marks, number)
                        writers[piece.kind].write(piece.rows)
                elif isinstance(piece, Everywhere):
                    everywhere.setdefault(piece.kind, []).append(piece.rows)
                elif piece.rows.num_rows:
                    shard = shard_of(piece.keys, self.shards)
                    yield from exchange.wire_rows(by_shard(piece.kind, piece.rows, shard))
        files = [asdict(writer.close()) for writer in writers.values()]
        yield from self._end_rows(number, stats, files, everywhere)

    def _end_rows(
        self,
        number: int,
        stats: Mapping[str, int],
        files: list[dict[str, Any]],
        everywhere: Mapping[str, list[pa.Table]],
    ) -> Iterator[pa.RecordBatch]:
        """Yield a task's last wire rows: its report, and the rows for every shard."""
        if stats or files:
            report = exchange.split_report(number % self.shards, {**reported(stats), "files": files})
            yield from exchange.wire_rows([report])
        for kind, tables in everywhere.items():
            rows = pa.concat_tables(tables)
            if rows.num_rows:
                yield from exchange.wire_rows((shard, kind, rows) for shard in range(self.shards))
        if self.operator.ticks:
            tick = pa.table({name: pa.array([value], pa.int64()) for name, value in {**stats, "task": number}.items()})
            yield from exchange.wire_rows((shard, TICK, tick) for shard in range(self.shards))


def _number_of_this() -> int:
    """Return the number of this task's partition."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
