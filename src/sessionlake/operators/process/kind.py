"""Processors as everything above the engine sees them: their tables, and how states are read back from these."""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import CHANGES, Output
from sessionlake.operators.process.changelog import OUTPUTS, STATES
from sessionlake.operators.process.factory import operator_of
from sessionlake.operators.process.operator import Process
from sessionlake.operators.process.output import identified_outputs
from sessionlake.operators.process.spec import (
    NEXT_CLOCK,
    STATE_ROWS,
    ProcessSpec,
    expired_us,
    output_schema,
    output_snapshot_schema,
    state_schema,
    state_snapshot_schema,
)
from sessionlake.sources.base import Source
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse.batches import last_batch_id
from sessionlake.warehouse.changelog import DELETED, Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions

_LAYOUT = 1
"""Version of the layout of stores."""


class Processors(EventKind[ProcessSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = OUTPUTS
    numbers_messages: ClassVar[bool] = True
    restating: ClassVar[None] = None
    redeeming: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None
    lookups: ClassVar[None] = None

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return the states' and the output's."""
        del config
        return STATES, OUTPUTS

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "Processors":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> Process:
        """Return the workers' half."""
        return Process(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshots and the changelogs of states and output."""
        columns = self.spec.output
        return (
            TableSpec(STATES.snapshot, state_snapshot_schema(), "Snapshot of the keys' states, as far as compacted"),
            changelog_table(STATES, state_schema(marks=True)),
            TableSpec(OUTPUTS.snapshot, output_snapshot_schema(columns), "Snapshot of output, as far as compacted"),
            changelog_table(OUTPUTS, output_schema(columns, marks=True)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the states, and the output."""
        sent = output_schema(self.spec.output, marks=True)
        return (
            changelog_output(STATES, tables, state_schema(marks=True), STATE_ROWS, same_rows),
            changelog_output(OUTPUTS, tables, sent, CHANGES, identified_outputs),
        )

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return nothing: the config's own settings say all."""
        return {}

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the states as of the last commit."""
        del operator, state
        timers = F.transform(
            "timers",
            lambda t: F.struct(
                t["name"].alias("name"), F.unix_micros(t["at"]).alias("at_us"), t["clock"].alias("clock")
            ),
        )
        columns = [
            F.col(STATES.key).alias("key"),
            F.unix_micros("touched_at").alias("touched_us"),
            *map(F.col, ("position", "ordinal", "entries")),
            timers.alias("timers"),
        ]
        return all_versions(tables, columns, of=STATES, until=last_batch_id(tables, OUTPUTS))

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention, which the index of removals depends on."""
        return f"{_LAYOUT}/{cast('Process', operator).spec.retention_us}"

    def suite_values(self) -> dict[str, int | bool]:
        """Return nothing: no suite refers to numbers."""
        return {}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which rows are beyond retention."""
        return expired_us(config.retention_us, state)

    @classmethod
    def unneeded(cls, config: Config, state: State) -> dict[str, str]:
        """Return the states' deletions, which nothing needs once they are folded."""
        del config, state
        return {STATES.snapshot: DELETED}

    def due_us(self, state: State) -> int | None:
        """Return the time of the first pending clock timer."""
        found = state.get(NEXT_CLOCK)
        return None if found is None else int(found)
