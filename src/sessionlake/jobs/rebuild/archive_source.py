"""The archive in the place of a source: each column that a config reads, from the place where the archive has it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sessionlake.columnar.column_types import stored_type, type_named
from sessionlake.config.fields import as_columns
from sessionlake.config.load import Config
from sessionlake.config.sections import identity_of
from sessionlake.errors import JobError
from sessionlake.jobs.rebuild.archive import FROM_SOURCE, Archive
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.whole_rows import ARCHIVED, ArchiveDecoder
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse import schemas
from sessionlake.warehouse.streamed_files import BATCH


@dataclass(frozen=True)
class ArchiveSource:
    """Events of the archive as a `TypedSource`."""

    archive: Archive
    config: Config

    def columns(self) -> list[str]:
        """Return the columns that were read."""
        return list(self._pinned)

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the columns' types from the old tables, or from the config; JobError if a column was not read."""
        del identity
        named = self.config.source.types
        types = {name: stored_type(text) for name, text in self._pinned.items()}
        for name in needed:
            self._place(name)
        return {name: type_named(named[name]) if name in named else types[name] for name in needed}

    def decoder(self, columns: EventColumns) -> ArchiveDecoder:
        """Return the decoder of `rows`; JobError if a number or text of the time is computed from, of which the archive has the meaning only."""
        understood = [name for name in columns.needed if name not in self._fields]
        computed_from = {*columns.inputs, *columns.asked, *columns.also}
        for name in understood:
            is_time = name == self._before("time") and not pa.types.is_timestamp(columns.types[name])
            if is_time and name in computed_from:
                raise _lacking(name)
        return ArchiveDecoder(columns, frozenset(name for name in understood if name not in computed_from))

    def rows(self, columns: EventColumns) -> DataFrame:
        """Return the archived events with the columns that `decoder` takes."""
        needed = [self._place(name).alias(name) for name in columns.needed]
        return self.archive.rows().select(F.struct(*needed).alias(ARCHIVED), BATCH)

    @property
    def _pinned(self) -> Mapping[str, str]:
        return self.archive.batch.settings.types

    @property
    def _fields(self) -> list[str]:
        """The columns that the archive has in its struct."""
        struct = self.archive.tables[schemas.EVENTS].read(self.archive.version).schema["event"].dataType
        return struct.names if isinstance(struct, StructType) else []

    def _place(self, column: str) -> Column:
        """Return a column of the archive's rows; the struct has it as it was read, the others as they were understood."""
        event = self.config.event
        if column in self._fields:
            self._require_all(column)
            return F.col("event").getField(column)
        if column in (self._before("columns") or {}):
            raise _lacking(column)
        forms = (self._before("time_unit"), self._before("time_format"))
        if column == self._before("time") and (event.time_unit, event.time_format) == forms:
            return F.col("event_time")
        ids = identity_of(self._before("id"), self._before("explode") or self._before("explode_outer"))
        for names, place in ((as_columns(self._before("key")), "key"), (ids, "event_id")):
            if column in names:
                texts = F.from_json(place, "array<string>")
                return F.col(place) if len(names) == 1 else texts[names.index(column)]
        raise _lacking(column)

    def _require_all(self, column: str) -> None:
        """Raise JobError if the archive has events from before the pipeline read a column: they lack it."""
        batch = self.archive.batch
        if not batch.settings.layouts:
            return
        since = Pinned.of_settings(batch.settings, batch.batch_id).since([column])
        if not self.archive.rows().where(F.col(BATCH) < since).isEmpty():
            raise JobError(
                f"--from-archive: the archive has column {column!r} only from batch {since} on, because the pipeline did not read it "
                f"before; {FROM_SOURCE}"
            )

    def _before(self, key: str) -> Any:
        return self.archive.batch.settings.rebuild.get(f"{self.config.event_at}.{key}")


def _lacking(column: str) -> JobError:
    return JobError(
        f"--from-archive: the archive does not have column {column!r}, because the pipeline did not read it; {FROM_SOURCE}"
    )
