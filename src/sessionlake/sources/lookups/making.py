"""The file of a version, made by a Spark task."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.columnar.equality import as_texts, has_other_text
from sessionlake.config.lookups import LookupSection
from sessionlake.sources.columns import TIMESTAMP
from sessionlake.sources.lookups.dimension import FROM, UNTIL, BadVersionError, Dimension, with_key
from sessionlake.sources.lookups.lookup import UNFINISHED
from sessionlake.warehouse.arrow_files import file_system, local_path

UNREAD = "__sessionlake_unread"
"""The column with an unreadable row's place, null for others."""


@dataclass(frozen=True)
class Making:
    """How the rows of a table become a file."""

    of_table: tuple[str, ...]
    """The columns that make the key."""
    columns: Mapping[str, str]
    """The columns that events get, by their names in the config, with their names in the rows."""
    valid_from: str | None
    valid_to: str | None
    max_rows: int
    casts: tuple[bool, ...] = ()
    """Which of `of_table` are compared as texts; empty for none."""

    @classmethod
    def of(cls, section: LookupSection, called: Callable[[str], str] = str) -> "Making":
        """Return a lookup's; `called` gives rows' names for columns."""
        return cls(
            tuple(map(called, section.of_table)),
            {column: called(column) for column in section.columns},
            section.valid_from and called(section.valid_from),
            section.valid_to and called(section.valid_to),
            section.max_rows,
            tuple(right for _, right in section.casts),
        )

    def settings(self, types: Sequence[pa.DataType]) -> list[Any]:
        """Return, as JSON values, all that a file depends on besides the table's version; `types` are those of `of_table`.

        Files of before rule 465 are used on, unless their keys have other texts now.
        """
        before: list[Any] = [self.of_table, self.columns, self.valid_from, self.valid_to, self.max_rows]
        is_other = any(self.casts) or any(map(has_other_text, types))
        return [*before, self.casts] if is_other else before

    def make(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, uri: str) -> Iterator[pa.RecordBatch]:
        """Make a file of rows with a schema, and yield a row: the reason against the version, or null."""
        bad = None
        try:
            self.write(pa.concat_tables([schema.empty_table(), *self._gathered(batches, schema)]), uri)
        except BadVersionError as error:
            bad = str(error)
        yield pa.RecordBatch.from_pydict({"bad": pa.array([bad], pa.string())})

    def dimension(self, rows: pa.Table) -> Dimension:
        """Return the version with these rows; BadVersionError if it must not be used."""
        try:
            columns = self._rows(rows)
        except pa.ArrowInvalid as error:  # its text may have a key
            raise BadVersionError("has a time that is out of range, or a text that is no UTF-8") from error
        return Dimension.of(columns, self.max_rows)

    def _rows(self, rows: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: rows[column] for name, column in self.columns.items()}
        for name, column in ((FROM, self.valid_from), (UNTIL, self.valid_to)):
            if column is not None:
                columns[name] = rows[column].cast(TIMESTAMP).cast(pa.int64())
        return with_key(columns, as_texts([rows[name] for name in self.of_table], self.casts))

    def write(self, rows: pa.Table, uri: str) -> None:
        """Write a version's file with these rows, first under another name, so that an existing file is whole."""
        version, here = self.dimension(rows), local_path(uri)
        if here is None:
            system, path = file_system(uri)
            with system.open_output_stream(path) as sink:
                version.write(sink)
            return
        Path(here).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = f"{here}.{uuid.uuid4().hex}{UNFINISHED}"
        with pa.OSFile(temporary, "wb") as sink:
            version.write(sink)
        os.replace(temporary, here)  # noqa: PTH105 (over that of another attempt)

    def _gathered(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
        rows = 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if UNREAD in table.column_names:
                unread = table[UNREAD].drop_null()
                if len(unread):
                    raise BadVersionError(f"has rows that can't be read, the first at {unread[0].as_py()}")
                table = table.drop_columns([UNREAD])
            rows += table.num_rows
            if rows > self.max_rows:
                raise BadVersionError(f"has more than {self.max_rows:,} rows, its max_rows")
            yield table.cast(schema)  # Spark's times have the zone of its session
