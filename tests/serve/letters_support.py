"""The table dead_letters of a pipeline whose commits a test makes."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from sessionlake.warehouse import schemas
from tests.serve.replica_support import Stream


def write_letters(stream: Stream, rows: list[dict[str, Any]]) -> None:
    """Write the table dead_letters of a pipeline; each row has a key of its own."""
    made = [
        {"key": f"k{n}", "event_time": datetime(2026, 1, 1, tzinfo=UTC), "commit_id": "c", **row}
        for n, row in enumerate(rows)
    ]
    table = pa.Table.from_pylist(made, schema=schemas.DEAD_LETTERS_SCHEMA)
    write_deltalake(str(stream.root / f"lake/{schemas.DEAD_LETTERS}"), table)
