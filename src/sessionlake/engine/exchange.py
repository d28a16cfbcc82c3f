"""The columnar exchange: Arrow tables travel through Spark's shuffle as a few binary rows."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

WIRE_SCHEMA = pa.schema([("shard", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())])
WIRE_DDL = "shard int, kind string, payload binary"
KIND, PAYLOAD = "_kind", "_payload"
STATS, STALE, NEEDS = "_stats", "_stale", "_needs"


def to_payload(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_payload(payload: pa.Scalar) -> pa.Table:
    """Return the table of an IPC stream, without a copy."""
    return pa.ipc.open_stream(payload.as_buffer()).read_all()


def wire_rows(pieces: Iterable[tuple[int, str, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """Yield each (shard, kind, table) as one row of WIRE_SCHEMA."""
    for shard, kind, table in pieces:
        yield pa.RecordBatch.from_arrays(
            [pa.array([shard], pa.int32()), pa.array([kind]), pa.array([to_payload(table)], pa.binary())],
            schema=WIRE_SCHEMA,
        )


def read_wire(batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
    """Return the tables of each shard by kind."""
    parts: dict[int, dict[str, list[pa.Table]]] = {}
    for batch in batches:
        for shard, kind, payload in zip(
            batch["shard"].to_pylist(), batch["kind"].to_pylist(), batch["payload"], strict=True
        ):
            parts.setdefault(shard, {}).setdefault(kind, []).append(from_payload(payload))
    return {shard: {kind: pa.concat_tables(tables) for kind, tables in kinds.items()} for shard, kinds in parts.items()}


def output_schema(changes: pa.Schema) -> pa.Schema:
    """Return the schema of a shard task's rows: a change, or a kind with a payload."""
    return changes.append(pa.field(KIND, pa.string())).append(pa.field(PAYLOAD, pa.binary()))


def change_batches(changes: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield changes as rows of the output schema."""
    schema = output_schema(changes.schema)
    for batch in changes.combine_chunks().to_batches():
        nulls = [pa.nulls(batch.num_rows, pa.string()), pa.nulls(batch.num_rows, pa.binary())]
        yield pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=schema)


def control_batch(changes: pa.Schema, payloads: Mapping[str, bytes]) -> pa.RecordBatch:
    """Return rows of the output schema that carry payloads instead of changes."""
    n = len(payloads)
    arrays = [pa.nulls(n, f.type) for f in changes]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(payloads.keys(), pa.string()), pa.array(payloads.values(), pa.binary())],
        schema=output_schema(changes),
    )
