"""A batch whose rows in side tables are committed, and which is not itself: its next attempt keeps those rows."""

from collections.abc import Mapping

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.kind import Kind
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables


def side_tables(config: Config, kind: type[Kind]) -> tuple[str, ...]:
    """Return the tables that a batch may write before the changelog."""
    *first, _ = kind.changelogs_in(config)
    return (*schemas.SIDES, *(of.changes for of in first))


def interrupted(
    tables: Tables, config: Config, kind: type[Kind], checkpoint_id: str | None, last: BatchCommit | None
) -> BatchCommit | None:
    """Return the interrupted batch after the last one, as its side tables have it; None if there is none."""
    batch_id = 0 if last is None else last.batch_id + 1
    for name in side_tables(config, kind):
        commit = tables[name].last_commit() if tables[name].exists() else None
        if commit is None or commit.metadata["checkpoint_id"] != checkpoint_id:
            continue
        if commit.metadata["batch_id"] >= batch_id:
            return BatchCommit.of(commit, name)
    return None


def check_columns(config: Config, now: Mapping[str, EventSpec], before: Mapping[str, EventSpec]) -> None:
    """Raise PipelineStateError if an interrupted batch reads a column that the stream of a table does not give any more."""
    for name, side in config.inputs.items():
        read, needed = (inputs[name].decoder.columns.needed for inputs in (now, before))
        gone = [column for column in needed if column not in read]
        if side.source.entry.is_table and gone:
            raise PipelineStateError(
                f"{side.source.place_at}: a batch was interrupted that reads column {gone[0]!r}, and the config reads it no more; "
                "start once with the config of before, and change it then"
            )
