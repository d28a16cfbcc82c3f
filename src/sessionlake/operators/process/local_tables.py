"""The tables of a processor in memory, for runs without Spark; `Processors` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.process.changelog import STATES
from sessionlake.operators.process.operator import Process
from sessionlake.operators.process.spec import RESTORED_SCHEMA, STATE_ROWS, state_schema
from sessionlake.warehouse.latest_rows import Row, plain_rows

_TIMERS = pa.list_(pa.struct([("name", pa.string()), ("at", pa.int64()), ("clock", pa.bool_())]))
_TIMES: dict[str, pa.DataType] = {"touched_at": pa.int64(), "timers": _TIMERS}
_IN_NUMBERS = pa.schema([(f.name, _TIMES.get(f.name, f.type)) for f in state_schema(marks=False)])
"""The schema of the changes of states, with times in microseconds."""


class ProcessTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self) -> None:
        self.states: dict[str, Row] = {}
        """The states by key, as RESTORED_SCHEMA has them."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's states; return the rows that were sent."""
        for result in results:
            if STATE_ROWS in result.side:
                self._add_states(result.side[STATE_ROWS])
        return [row for result in results for row in plain_rows(result.changes)]

    def _add_states(self, changes: pa.Table) -> None:
        for row in changes.cast(_IN_NUMBERS).to_pylist():
            key = row[STATES.key]
            self.states.pop(key, None)
            if row["op"] == "upsert":
                timers = [{"name": t["name"], "at_us": t["at"], "clock": t["clock"]} for t in row["timers"]]
                own = {"key": key, "touched_us": row["touched_at"], "timers": timers}
                self.states[key] = {**own, **{name: row[name] for name in ("position", "ordinal", "entries")}}

    def stored(self, operator: Process, state: Mapping[str, Any]) -> pa.Table:
        """Return the states."""
        del operator, state
        return pa.Table.from_pylist(list(self.states.values()), schema=RESTORED_SCHEMA)

    def lookups(self, operator: Process, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError
