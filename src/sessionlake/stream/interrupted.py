"""A batch whose rows in side tables are committed, and which is not itself: its next attempt keeps those rows."""

from sessionlake.config.load import Config
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
