"""The dead letters of a pipeline, from their table: how many there are for each reason, and the rows (docs/rules.md, rule 207)."""

import re
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.errors import CUT, QUOTED
from sessionlake.serve.cursors import Position
from sessionlake.serve.database import open_table
from sessionlake.serve.tables import in_time
from sessionlake.sources.decoding.decoded import WRONG_TYPE
from sessionlake.warehouse.lake import Lake, LakeTable
from sessionlake.warehouse.schemas import BATCH_MARKS, DEAD_LETTERS

_NO_BATCH = -1
"""The batch of the rows that jobs wrote: they come last."""
_BATCH, _SOURCE = f"coalesce(batch_id, {_NO_BATCH})", "coalesce(source, '')"
_CUTS = {
    "quoted": (QUOTED, CUT),
    # A number of the wrong type is not quoted.
    "typed": (f"^({WRONG_TYPE}[^=]* = ).*( is not a )", r"\1...\2"),
    # Not the line of a file of code.
    "number": (r"([^:0-9A-Za-z_.])[0-9]+(\.[0-9]+)?", r"\1..."),
}
"""The parts of reasons that are values of rows, and what stands in their places, in this order."""
_REASON = reduce(lambda sql, name: f"regexp_replace({sql}, ${name}, ${name}_cut, 'g')", _CUTS, "coalesce(reason, '')")
_GIVEN = {name: text for of, cut in _CUTS.items() for name, text in zip((of, f"{of}_cut"), cut, strict=True)}
_HASH = "row_hash"
NUMBERS = 2
"""The numbers of a position: batch and hash."""


@dataclass(frozen=True)
class DeadLetters:
    """The rows up to a batch, as the table has them when they are first read."""

    config: Config
    batch_id: int

    def reasons(self, limit: int) -> pa.Table:
        """Return the kind, reason, number of rows and last batch of each reason, the most frequent one first.

        Values of rows in a reason are cut: quoted parts, values of a wrong type, numbers. RefusedError if that takes too long.
        """
        columns = f"kind, {_REASON} as reason, count(*) as rows, max(batch_id) as last_batch"
        query = f"select {columns} from {DEAD_LETTERS} where {_BATCH} <= $upto group by 1, 2 order by rows desc, 1, 2 limit $limit"
        return self._found(query, {**_GIVEN, "limit": limit})

    def rows(self, reason: str | None, after: Position | None, limit: int) -> pa.Table:
        """Return rows, those of the newest batch first: of one reason, as `reasons` has it, and after a position.

        The last column is part of the position, and not of the table. RefusedError if the rows are not found in time.
        """
        given: dict[str, Any] = {"limit": limit, "upto": self.batch_id}
        where = f"{_BATCH} <= $upto"
        if reason is not None:
            where, given = f"{where} and {_REASON} = $reason", {**given, **_GIVEN, "reason": reason}
        if after is not None:
            given["upto"] = min(self.batch_id, int(after[1]))
        pushed = self._batches(where, given, None if after is None else int(after[1]))
        if after is not None:
            where = f"{where} and ({_BATCH} < $batch or ({_SOURCE}, {_HASH}) > ($source, $hash))"
            given |= dict(zip(("source", "batch", "hash"), after, strict=True))
        hashed = f"(select *, {self._hash} as {_HASH} from {DEAD_LETTERS})"
        query = f"select * from {hashed} where {where} order by {_BATCH} desc, {_SOURCE}, {_HASH} limit $limit"
        return self._found(query, given, pushed)

    @staticmethod
    def position(row: dict[str, Any]) -> Position:
        """Return the position of a row: its source, its batch, and a hash of the rest."""
        return row["source"] or "", _NO_BATCH if row["batch_id"] is None else row["batch_id"], row[_HASH]

    @staticmethod
    def shown(rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the table alone."""
        return rows.drop_columns([name for name in (_HASH,) if name in rows.column_names])

    def _batches(self, where: str, given: dict[str, Any], begun: int | None) -> str:
        """Return the condition of the batches that a page is of, so that the texts of all others stay unread.

        `begun` is the batch that has some of its rows on the page before.
        """
        query = (
            f"select {_BATCH}, count(*) from {DEAD_LETTERS} where {where} group by 1 order by 1 desc limit $limit + 1"
        )
        counts = self._found(query, given)
        lowest, left = _NO_BATCH, given["limit"]
        for batch, rows in zip(*(column.to_pylist() for column in counts.columns), strict=True):
            left -= 0 if batch == begun else rows
            if left <= 0:
                lowest = batch
                break
        reached = f"batch_id <= {given['upto']}"
        return f"{reached} or batch_id is null" if lowest == _NO_BATCH else f"{reached} and batch_id >= {lowest}"

    @cached_property
    def _table(self) -> LakeTable:
        return Lake.of(self.config)[DEAD_LETTERS]

    @property
    def _hash(self) -> str:
        """SQL of a number by which rows of one source differ, if they differ at all."""
        marks = {"source", *(field.name for field in BATCH_MARKS)}
        rest = ", ".join(name for name in self._table.open().schema().to_arrow().names if name not in marks)
        return f"(md5_number_lower(row({rest})::varchar) >> 1)::bigint"

    def _found(self, query: str, given: dict[str, Any], condition: str | None = None) -> pa.Table:
        asked = {
            name: value for name, value in {"upto": self.batch_id, **given}.items() if re.search(rf"\${name}\b", query)
        }
        with (
            closing(open_table(self._table.open(), DEAD_LETTERS, condition)) as database,
            in_time(database, self.config),
        ):
            return database.sql(query, params=asked).to_arrow_table()
