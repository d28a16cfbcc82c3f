"""Attempts that ended before their commit: rows in side tables, which the next attempt keeps, and plans to give up.

Spark plans a given-up batch again, for example with fewer files or without missing files.
"""

import re
from collections.abc import Mapping, Sequence

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.sources.base import Source
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


_LOG_FILE = re.compile(r"(\d+)(\.compact)?")


def replan(
    tables: Tables, config: Config, kind: type[Kind], sources: Mapping[str, Source], last: BatchCommit | None
) -> list[str]:
    """Remove the plan of the batch after the last committed batch; return sentences about it for the user.

    Call it with the driver's lock held, before the stream starts. The plan is a file of Spark's log of offsets and, if
    a source is files, entries in its log of files seen: both go, so that the files count as new again. Killed in between,
    it goes on when it is called again: the offsets go first, and entries without them are planned again by any start.
    Raises PipelineStateError if the batch has put out rows already, or logs do not fit together.
    """
    batch_id = 0 if last is None else last.batch_id + 1
    checkpoint = config.checkpoint
    offsets = [int(name) for name in tables.names(f"{checkpoint}/offsets") if name.isdigit()]
    if any(batch > batch_id for batch in offsets):
        raise PipelineStateError(
            f"checkpoint: {checkpoint!r} is ahead of the changelog, whose last batch is {batch_id - 1}; "
            "restore both as of one moment"
        )
    # The changelog's commit makes the batch durable.
    _check_sides(
        tables, side_tables(config, kind), checkpoint_id=None if last is None else last.checkpoint_id, batch_id=batch_id
    )
    planned = batch_id in offsets
    inputs = {n: files for n, source in enumerate(sources.values()) if (files := source.planned(tables)) is not None}
    gone = [path for files in inputs.values() for path in files.gone(batch_id)] if planned else []
    reached = {number: files.reached(batch_id - 1) for number, files in inputs.items()}
    entries = [path for number, entry in reached.items() for path in _entries_after(tables, config, number, entry)]
    if planned:
        tables.delete(f"{checkpoint}/offsets/{batch_id}")
    for entry in entries:
        tables.delete(entry)
    if not planned:
        return ["replan: no batch was planned and not committed; there was nothing to give up"]
    lost = [f"replan: planned file {path!r} is gone, and so is not read" for path in gone]
    return [f"replan: the plan of batch {batch_id} is discarded, and planned again", *lost]


def _check_sides(tables: Tables, sides: Sequence[str], checkpoint_id: str | None, batch_id: int) -> None:
    for side in sides:
        commit = tables[side].last_commit() if tables[side].exists() else None
        if commit is None or commit.metadata["batch_id"] < batch_id:
            continue
        if checkpoint_id in (None, commit.metadata["checkpoint_id"]):
            raise PipelineStateError(
                f"replan: batch {batch_id} has written its rows of {side!r} already, so that another plan would lose or double "
                "some; start without --replan, which goes on with it"
            )


def _entries_after(tables: Tables, config: Config, number: int, reached: int) -> list[str]:
    """Return the entries of an input's file log after a given entry, the newest first.

    Raises PipelineStateError if the entries up to the given one are incomplete. A compacted entry contains all entries
    before it, but those stay next to it for a hundred batches.
    """
    directory = f"{config.checkpoint}/sources/{number}"
    parsed = [(int(m[1]), bool(m[2]), m[0]) for m in map(_LOG_FILE.fullmatch, tables.names(directory)) if m]
    kept = {number for number, _, _ in parsed if number <= reached}
    whole = max((number for number, compact, _ in parsed if compact and number <= reached), default=0)
    if not kept.issuperset(range(whole, reached + 1)):
        raise PipelineStateError(
            f"replan: the log of source files in {directory!r} lacks entries up to {reached}; put the checkpoint back, "
            "or start without --replan"
        )
    return [f"{directory}/{name}" for number, _, name in sorted(parsed, reverse=True) if number > reached]
