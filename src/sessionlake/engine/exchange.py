"""The columnar exchange: Arrow tables travel through Spark's shuffle as a few binary rows."""

import json
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

WIRE_SCHEMA = pa.schema([("shard", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())])
WIRE_DDL = "shard int, kind string, payload binary"
REPORT_SCHEMA = pa.schema([("kind", pa.string()), ("payload", pa.binary())])
REPORT_DDL = "kind string, payload binary"
DONE, STALE, NEEDS = "done", "stale", "needs"
"""Kinds of a task's report: its numbers and files, a stale store of its shard, the rows it needs."""
SPLIT = "#split"
"""The kind of the wire row that carries a map task's report through the shuffle, as a JSON text. A report in a Spark
accumulator would count twice if a task runs twice. Of shuffled rows only one attempt is read."""
_REPORT = pa.schema([("report", pa.binary())])


def to_payload(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_payload(payload: pa.Buffer) -> pa.Table:
    """Return the table of an IPC stream, without a copy."""
    return pa.ipc.open_stream(payload).read_all()


def wire_rows(pieces: Iterable[tuple[int, str, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """Yield each (shard, kind, table) as a row of WIRE_SCHEMA."""
    for shard, kind, table in pieces:
        yield pa.RecordBatch.from_arrays(
            [pa.array([shard], pa.int32()), pa.array([kind]), pa.array([to_payload(table)], pa.binary())],
            schema=WIRE_SCHEMA,
        )


def read_wire(
    batches: Iterable[pa.RecordBatch], take: Callable[[int, str, pa.Buffer], bool] = lambda *_: False
) -> dict[int, dict[str, pa.Table]]:
    """Return the tables of each shard by kind. A column that a piece lacks is null; for example, ticks differ by task.

    A row that `take` takes, given its shard, kind and payload, is not among them.
    """
    parts: dict[int, dict[str, list[pa.Table]]] = {}
    for batch in batches:
        for shard, kind, payload in zip(
            batch["shard"].to_pylist(), batch["kind"].to_pylist(), batch["payload"], strict=True
        ):
            if not take(shard, kind, payload.as_buffer()):
                parts.setdefault(shard, {}).setdefault(kind, []).append(from_payload(payload.as_buffer()))
    return {
        shard: {kind: pa.concat_tables(tables, promote_options="default") for kind, tables in kinds.items()}
        for shard, kinds in parts.items()
    }


def split_report(task: int, report: dict[str, object]) -> tuple[int, str, pa.Table]:
    """Return a map task's report as a wire piece, to be read with `reports_among`."""
    return task, SPLIT, pa.table({"report": [json.dumps(report).encode()]}, schema=_REPORT)


def reports_among(inputs: dict[str, pa.Table]) -> list[bytes]:
    """Take the reports of map tasks out of a shard's inputs."""
    return inputs.pop(SPLIT)["report"].to_pylist() if SPLIT in inputs else []


def stale_report(shard: int, cause: str) -> pa.RecordBatch:
    """Return a shard's report of missing stored state, and the reason."""
    return report_batch(STALE, json.dumps({"shard": shard, "cause": cause}).encode())


def report_batch(kind: str, payload: bytes) -> pa.RecordBatch:
    """Return a shard task's report to the driver, as one row."""
    return pa.RecordBatch.from_arrays([pa.array([kind]), pa.array([payload], pa.binary())], schema=REPORT_SCHEMA)
