"""Batches without input: the driver asks for one if the stream is idle and the clock makes something due.

It appends a `tick` to the control input, so the batch is planned, logged and rerun as any other.
"""

import time

import pyarrow as pa

from sessionlake.stream.control import TICK
from sessionlake.stream.kind import Kind, State
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables


class Ticks:
    """Asks for the ticks of one run; each time that is due is asked for once."""

    def __init__(self, tables: Tables, kind: Kind) -> None:
        self._tables, self._kind = tables, kind
        self._asked: int | None = None

    def wake(self, state: State) -> bool:
        """Ask for a batch if the kind has something due by now that is not asked for yet; say whether that is so.

        Call it if no batch runs: `state` is the last committed batch's.
        """
        due_us, now_us = self._kind.due_us(state), time.time_ns() // 1000
        if due_us is None or due_us > now_us or due_us == self._asked:
            return False
        row = {"correction_id": f"tick-{due_us}", "kind": TICK, "job": "ticks", "created_at": now_us}
        self._tables[schemas.CORRECTIONS].append_rows(pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA))
        self._asked = due_us
        return True
