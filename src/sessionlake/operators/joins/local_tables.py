"""The tables of a join in memory, for runs without Spark; `Joins` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.spec import MESSAGES, POSITION, SIDE, message_schema
from sessionlake.operators.shared.sides.names import LEFT, RIGHT
from sessionlake.warehouse.latest_rows import LatestRows, Row


class JoinTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self, _config: object = None) -> None:
        self.pairs = LatestRows("join_key", "left_position", "right_position")
        """Pairs that were sent and not deleted."""
        self._messages: list[pa.Table] = []

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's pairs and messages."""
        self._messages += [result.side[MESSAGES] for result in results if MESSAGES in result.side]
        return [row for result in results for row in self.pairs.add(result.changes)]

    def stored(self, operator: Joiner, state: Mapping[str, Any]) -> pa.Table:
        """Return the messages that may still be joined."""
        spec, at = operator.spec, JoinProgress.of(state)
        table = pa.concat_tables(self._messages or [message_schema(spec, marks=False).empty_table()])
        time = table["time"].cast(pa.int64())
        place = pa.array(spec.places(time.to_numpy(), table[POSITION].to_numpy()))
        left = pc.equal(table[SIDE], LEFT)
        horizon = pc.if_else(left, at.horizon(LEFT), at.horizon(RIGHT))
        read_from = pc.if_else(left, at.restored_from(spec, LEFT), at.restored_from(spec, RIGHT))
        since = pc.if_else(table["is_late"], at.waiting_since(1), at.waiting_since(0))
        table = table.append_column("waits", pc.greater(table["revision"], since))
        names = ["key" if name == "join_key" else name for name in table.column_names]
        more = {
            "time_us": time,
            "kept": pc.greater_equal(place, horizon),
            "close_us": pa.repeat(at.at.close_us, len(table)),
            "full_us": pa.array([at.full_us] * len(table), pa.int64()),
        }
        table = table.rename_columns(names)
        for name, column in more.items():
            table = table.append_column(name, column)
        return table.filter(pc.greater_equal(place, read_from))

    def lookups(self, operator: Joiner, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError
