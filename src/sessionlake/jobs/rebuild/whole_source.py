"""The whole rows of the archive in the place of a source: a config reads of them whatever it would read of the source."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.columnar.column_types import stored_type, type_named
from sessionlake.config.load import Config
from sessionlake.errors import JobError, MissingColumnsError, SessionlakeError, first_line
from sessionlake.jobs.rebuild.archive import Archive
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import BATCH, Decoder, TypedSource
from sessionlake.sources.decoding.whole import SCHEMA
from sessionlake.sources.exploded import whole_decoder


@dataclass(frozen=True)
class WholeSource:
    """Whole rows of the archive as a `TypedSource`."""

    archive: Archive
    config: Config
    source: TypedSource
    """The pipeline's own, asked for nothing but types that neither the config nor the old warehouse knows."""

    def columns(self) -> list[str]:
        """Return the columns of the source."""
        return self.source.columns()

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of columns: as the config names them, as the old tables have them, or as the source does.

        JobError if the source has to be asked, and can't be read; MissingColumnsError if it lacks one.
        """
        named, pinned = self.config.source.types, self.archive.batch.settings.types
        known = {name: stored_type(pinned[name]) for name in needed if name in pinned}
        known |= {name: type_named(named[name]) for name in needed if name in named}
        fresh = [name for name in needed if name not in known]
        if not fresh:
            return known
        try:
            return known | self.source.types(fresh, identity)
        except MissingColumnsError:
            raise
        except SessionlakeError as error:
            at = self.config.source.AT
            raise JobError(
                f"--from-archive: the type of column {fresh[0]!r} is not known ({first_line(error)}); name it in [{at}.types]"
            ) from error

    def decoder(self, columns: EventColumns) -> Decoder:
        """Return the decoder of `rows`."""
        return whole_decoder(columns, self.source.decoder(columns))

    def rows(self, columns: EventColumns) -> DataFrame:
        """Return the whole rows up to the archive's last batch."""
        del columns
        return self.archive.whole_rows().select(*SCHEMA.names, BATCH)
