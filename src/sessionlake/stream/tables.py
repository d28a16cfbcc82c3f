"""The tables of every pipeline, whatever its operator, and the rows that its tasks write to them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.config.paths import make_private
from sessionlake.engine.outputs import REPLACED, Output
from sessionlake.errors import ConfigError
from sessionlake.stream.control import OUTCOMES
from sessionlake.stream.ingest import ARCHIVED, DEAD
from sessionlake.stream.input_log import BATCH_INPUTS, inputs_schema
from sessionlake.stream.kind import CHECKPOINT_INTERVAL, Kind, TableSpec, own_tables
from sessionlake.stream.outputs import LATE, archived_rows, late_rows, same_rows, sided_rows
from sessionlake.stream.unique import tables as unique_tables
from sessionlake.stream.whole import ALL, WHOLE
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables

_NOT_WRITABLE = (
    "DELTA_CANNOT_CREATE_LOG_PATH",
    "Permission denied",
    "Not a directory",
    "File exists",
    "Mkdirs failed",
    "Could not create local directory",
)


def create_tables(tables: Tables, config: Config, kind: Kind, *, grow: bool = False) -> None:
    """Create the pipeline's tables if they are not there; the changelog, whose first commit is a batch's, last.

    With `grow` those that are there get the columns of aggregates that were added.
    """
    try:
        if "://" not in config.pipeline.warehouse:
            make_private(Path(config.pipeline.warehouse.removeprefix("file:")))
        unique_tables.require_ids(tables, kind)
        own = own_tables(kind, tables.changelog)
        common = [
            replace(spec, properties={"checkpointInterval": CHECKPOINT_INTERVAL, **spec.properties})
            for spec in _common(config, kind)
        ]
        for spec in (*common, *_replaced_table(config, tables, own), *own):
            tables[spec.name].create(spec.schema, spec.comment, properties=spec.properties)
            if spec.name == schemas.REPLACED_ROWS:  # aggregates may have been added while nothing was kept
                tables[spec.name].grow(spec.schema)
            if spec.name == schemas.EVENTS and tables[spec.name].read().columns != spec.schema.names:
                raise ConfigError(
                    f"pipeline.archive: {tables[spec.name].uri!r} is a table of another kind; move it, or archive nothing"
                )
        _grow(tables, config, kind)
        if grow:
            _grow_for_aggregates(tables, config, kind)
    except Exception as error:
        if any(sign in str(error) for sign in _NOT_WRITABLE):
            raise ConfigError(
                f"pipeline.warehouse: {config.pipeline.warehouse!r} can't be written; give this user the right to or choose another path"
            ) from error
        raise


def _grow(tables: Tables, config: Config, kind: Kind) -> None:
    """Give tables of an earlier release the counts that the config needs: Spark ends a stream whose table grows under it."""
    filters = (side.event.where is not None or side.source.envelope is not None for side in config.inputs.values())
    is_unique = any(side.event.unique_for is not None for side in config.inputs.values())
    if is_unique:
        tables[schemas.CORRECTIONS].grow(
            schemas.corrections(until=config.section.facts.keeps_until, ids=True),
            [field.name for field in schemas.ID_FIELDS],
        )
    if any(filters) or is_unique:
        tables[schemas.BATCHES].grow(schemas.batches(kind.changelog.counts), schemas.ADDED_COUNTS)
        if tables[BATCH_INPUTS].exists():
            schema = inputs_schema(config.section.sides)
            tables[BATCH_INPUTS].grow(schema, schema.names)


def _grow_for_aggregates(tables: Tables, config: Config, kind: Kind) -> None:
    """Give tables the columns of added aggregates, and of what they read; corrections say from then on in which layout states are."""
    values = [aggregate.name for aggregate in kind.aggregates]
    for spec in own_tables(kind, tables.changelog):
        tables[spec.name].grow(spec.schema, values)
    tables[schemas.CORRECTIONS].grow(
        schemas.corrections(until=config.section.facts.keeps_until, layout=True), [schemas.LAYOUT]
    )
    event = schemas.events(kind.event_types).field("event")
    if kind.event_types:
        for name in (schemas.LATE_EVENTS, schemas.EVENTS):
            if tables[name].exists():
                tables[name].grow_struct(event)


def _replaced_table(config: Config, tables: Tables, own: Iterable[TableSpec]) -> tuple[TableSpec, ...]:
    """Return the table of the rows that batches replace or delete, if they are kept: the changelog's, as far as it says what a row is."""
    if not config.pipeline.keep_replaced:
        return ()
    (changelog,) = (spec for spec in own if spec.name == tables.changelog.changes)
    comment = "Rows that batches have replaced or deleted, as they were"
    return (
        replace(
            changelog, name=schemas.REPLACED_ROWS, schema=_of_rows(tables.changelog, changelog.schema), comment=comment
        ),
    )


def _of_rows(of: Changelog, changes: pa.Schema) -> pa.Schema:
    """Return the schema of changes without the columns that say nothing about a row."""
    return pa.schema([field for field in changes if field.name not in of.of_changes])


def outputs_of(tables: Tables, kind: Kind) -> tuple[Output, ...]:
    """Return all that a pipeline's tasks write, in the order of the commits; the changelog's is the batch's."""
    inputs = kind.event_types
    *sides, changelog = kind.outputs(tables)
    return (
        # The first, see `whole_rows`.
        Output(
            WHOLE,
            schemas.SOURCE_ROWS,
            tables[schemas.SOURCE_ROWS].uri,
            schemas.SOURCE_ROWS_SCHEMA,
            same_rows,
        ),
        Output(ARCHIVED, schemas.EVENTS, tables[schemas.EVENTS].uri, archive_of(kind), archived_rows),
        *sides,
        *unique_tables.outputs_of(tables, kind),
        Output(
            LATE,
            schemas.LATE_EVENTS,
            tables[schemas.LATE_EVENTS].uri,
            schemas.late_events(inputs, kind.late_columns),
            late_rows,
        ),
        Output(
            DEAD,
            schemas.DEAD_LETTERS,
            tables[schemas.DEAD_LETTERS].uri,
            dead_letters_of(kind),
            sided_rows if len(kind.inputs) > 1 else same_rows,
        ),
        Output(
            OUTCOMES,
            schemas.CORRECTION_OUTCOMES,
            tables[schemas.CORRECTION_OUTCOMES].uri,
            schemas.CORRECTION_OUTCOMES_SCHEMA,
            same_rows,
        ),
        # Also if they are not kept any more, see `unique_tables.outputs_of`.
        *([_replaced_of(tables, changelog)] if tables[schemas.REPLACED_ROWS].exists() else []),
        changelog,
    )


def keeps_replaced(tables: Tables, config: Config, kind: Kind) -> bool:
    """Say whether rows are kept as they were: not if they were sent with columns of aggregates that have been dropped since."""
    if not config.pipeline.keep_replaced:
        return False
    *_, changelog = kind.outputs(tables)
    return {*tables[changelog.table].read().columns} <= {*changelog.schema.names}


def _replaced_of(tables: Tables, changelog: Output) -> Output:
    table = schemas.REPLACED_ROWS
    schema = _of_rows(tables.changelog, changelog.schema)
    return replace(changelog, kind=REPLACED, table=table, uri=tables[table].uri, schema=schema, guarded=False)


def _common(config: Config, kind: Kind) -> tuple[TableSpec, ...]:
    inputs = kind.event_types
    refused = "Rows refused: malformed, beyond retention, too far in the future"
    return (
        TableSpec(
            schemas.CORRECTIONS,
            schemas.corrections(until=config.section.facts.keeps_until),
            "Control input: restate, replace, tombstone",
        ),
        TableSpec(
            schemas.LATE_EVENTS, schemas.late_events(inputs, kind.late_columns), "Events past grace, within retention"
        ),
        *(
            [TableSpec(schemas.EVENTS, archive_of(kind), "Archive: events accepted or late")]
            if config.pipeline.archive
            else []
        ),
        *(
            [
                TableSpec(
                    schemas.SOURCE_ROWS,
                    schemas.SOURCE_ROWS_SCHEMA,
                    "Archive: rows as they came, with all their columns",
                )
            ]
            if config.pipeline.archive == ALL
            else []
        ),
        *unique_tables.tables_of(kind),
        TableSpec(schemas.DEAD_LETTERS, dead_letters_of(kind), refused),
        TableSpec(
            schemas.CORRECTION_OUTCOMES,
            schemas.CORRECTION_OUTCOMES_SCHEMA,
            "What became of each correction that a batch took",
        ),
        TableSpec(
            schemas.BATCHES, schemas.batches(kind.changelog.counts), "What each micro-batch did; counts reconcile"
        ),
    )


def archive_of(kind: Kind) -> pa.Schema:
    """Return the schema of the archive. If there are several inputs, a column names each event's input."""
    schema = schemas.events(kind.event_types)
    return schema.append(schemas.SIDE_FIELD) if len(kind.inputs) > 1 else schema


def dead_letters_of(kind: Kind) -> pa.Schema:
    """Return the schema of dead letters. If there are several inputs, a column names each row's input."""
    schema = schemas.DEAD_LETTERS_SCHEMA
    return schema.append(schemas.SIDE_FIELD) if len(kind.inputs) > 1 else schema
