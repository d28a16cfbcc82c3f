"""The rows of joins of tables. Light: who only reads tables imports it."""

from dataclasses import dataclass

import pyarrow as pa

from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import OneRowChangelog
from sessionlake.warehouse.row_table import VALUES, Column, Role, RowTable
from sessionlake.warehouse.schemas import SIDE

POSITION, CONTENT = "position", "content"
"""Columns of a side's row: the number that names it among those of its key and side, and its packed columns."""
LEFT_POSITION, RIGHT_POSITION = "left_position", "right_position"
"""Columns of a result: the rows that it is of."""
_KEY = "The equal fields: one as its text, several as JSON; with a null among them JSON, too"
_CHANGED = (
    Column("changed_at", schemas.TIME, "The clock of the batch that changed the row last", Role.CLOCK),
    Column("revision", pa.int64(), "batch_id of the row's last change", Role.REVISION),
)


@dataclass(frozen=True)
class PlacedChangelog(OneRowChangelog):
    """A changelog of rows that the key and further columns name, and whose time changes. All rows are of one part, 0."""

    places: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """The key and the places."""
        return self.key, *self.places

    @property
    def of_changes(self) -> tuple[str, ...]:
        """No states: a column of that name is the user's."""
        return ("op",)


SIDE_ROWS = RowTable(
    PlacedChangelog("side_row", time="changed_at", places=(SIDE, POSITION)),
    (
        Column("side_row_key", pa.string(), _KEY, Role.KEY, "key"),
        Column(SIDE, pa.string(), "left, right", Role.VALUE, SIDE),
        Column(POSITION, pa.int64(), "Names the row among those of its key and side", Role.VALUE, POSITION),
        Column(CONTENT, pa.binary(), "The packed columns; what a restore needs", Role.VALUE, CONTENT),
        *_CHANGED,
    ),
    rows="both sides' rows",
    output="side_rows",
)
"""The rows of both sides, from which stores are restored."""
JOINED = RowTable(
    PlacedChangelog(
        "joined_row",
        (SIDE_ROWS.changelog,),
        time="changed_at",
        places=(LEFT_POSITION, RIGHT_POSITION),
        numbers=(LEFT_POSITION, RIGHT_POSITION),
        counts=("taken_back", "without_key"),
    ),
    (Column("joined_row_key", pa.string(), _KEY, Role.KEY), VALUES, *_CHANGED),
    rows="results",
)
"""The results. Batches also count the accepted rows that were taken back, and the rows with a null among the equal fields that no result has."""
