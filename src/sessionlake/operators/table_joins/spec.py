"""The specification of a join of tables that workers get: its sides, and the columns of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from sessionlake.operators.shared.sides.columns import check_types, column_fields
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES
from sessionlake.operators.table_joins.changelog import JOINED, SIDE_ROWS
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas
from sessionlake.warehouse.schemas import SIDE

ROWS = "side_rows"
"""Kind of the changes of side_row_changelog that shards put out."""
POSITION, CONTENT = "position", "content"
"""Columns of a side's row in tables: the number that names it among those of its key and side, and its packed columns."""


@dataclass(frozen=True)
class TableSide:
    """One of the two inputs."""

    name: str
    """As the tables' columns are called: `<name>_<column>`."""
    on: tuple[str, ...]
    """Its equal fields, which are among the columns that are read."""
    columns: tuple[str, ...]
    """The columns that results have."""
    events: EventSpec
    """Its decoder's columns have no key: a row may have none (rule 323)."""

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of `columns`."""
        return {name: self.events.types[name] for name in self.columns}


@dataclass(frozen=True)
class TableJoinSpec:
    """A pipeline's join of tables."""

    left: TableSide
    right: TableSide
    outer: tuple[str, ...] = ()
    """The sides whose rows make a result without a partner."""

    def __post_init__(self) -> None:
        """Refuse columns of types that stores can't hold; ConfigError."""
        check_types("table_join", self.both)

    @property
    def both(self) -> dict[str, TableSide]:
        """Both sides, LEFT first."""
        return {LEFT: self.left, RIGHT: self.right}

    def under(self, live: Mapping[str, Any]) -> "TableJoinSpec":
        """Return the spec under other settings of classification (`Config.live_settings`); each side has its own under its name."""
        sides = {
            name: replace(side, events=ingest.with_live_settings(side.events, {**live, **live[name]}))
            for name, side in self.both.items()
        }
        return replace(self, left=sides[LEFT], right=sides[RIGHT])


_KEY_COMMENT = "The equal fields: one as its text, several as JSON; with a null among them JSON, too"


def result_schema(spec: TableJoinSpec, *, marks: bool) -> pa.Schema:
    """Return the schema of joined_row_changelog, or without the marks of batch and attempt."""
    op = schemas.commented("op", pa.string(), "upsert, delete")
    return pa.schema([op, *_result(spec), *(schemas.BATCH_MARKS if marks else [])])


def result_snapshot_schema(spec: TableJoinSpec) -> pa.Schema:
    """Return the schema of joined_rows."""
    return pa.schema([*_result(spec), _part(JOINED.date)])


def side_schema(*, marks: bool) -> pa.Schema:
    """Return the schema of side_row_changelog, the state's changelog, or without the marks of batch and attempt."""
    op = schemas.commented("op", pa.string(), "upsert, delete")
    return pa.schema([op, *_SIDE_FIELDS, *(schemas.BATCH_MARKS if marks else [])])


def side_snapshot_schema() -> pa.Schema:
    """Return the schema of side_rows."""
    return pa.schema([*_SIDE_FIELDS, _part(SIDE_ROWS.date)])


def _result(spec: TableJoinSpec) -> list[pa.Field]:
    positions = [
        schemas.commented(f"{side}_position", pa.int64(), f"The row of {spec.both[side].name}; 0 for none")
        for side in SIDES
    ]
    return [
        schemas.commented(JOINED.key, pa.string(), _KEY_COMMENT),
        *positions,
        *column_fields(spec.both),
        *_marks_of_change(JOINED.time),
    ]


def _marks_of_change(time: str) -> list[pa.Field]:
    return [
        schemas.commented(time, schemas.TIME, "The clock of the batch that changed the row last"),
        schemas.commented("revision", pa.int64(), "batch_id of the row's last change"),
    ]


def _part(name: str) -> pa.Field:
    return schemas.commented(name, pa.int64(), "0: all rows are one part, and files hold ranges of keys")


_SIDE_FIELDS = (
    schemas.commented(SIDE_ROWS.key, pa.string(), _KEY_COMMENT),
    schemas.commented(SIDE, pa.string(), "left, right"),
    schemas.commented(POSITION, pa.int64(), "Names the row among those of its key and side"),
    schemas.commented(CONTENT, pa.binary(), "The packed columns; what a restore needs"),
    *_marks_of_change(SIDE_ROWS.time),
)
RESTORED_SCHEMA = pa.schema([("key", pa.string()), (SIDE, pa.string()), (POSITION, pa.int64()), (CONTENT, pa.binary())])
"""The columns of each side's row that a restore reads."""
