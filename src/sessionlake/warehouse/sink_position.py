"""Position of a sink's table: each step writes it with the rows, into the log of [sink.delta], a row of [sink.postgres], or a file of [sink.python]."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake.config.config import Config
from sessionlake.config.source import TABLE, DeltaSink
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import Changelog, changelog_of
from sessionlake.warehouse.delta_log import DeltaLog, Logs
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.seen import Visible

STEPS = "sessionlake.sink"
"""Delta's txnAppId of the steps; their txnVersion is the number of the step.

If it were the batch that a step leads to, Delta would take a step from an older batch: another follower may have committed one
since the position was read, to a batch before it.
"""
HISTORY = "history"
_SINK = "sink"
_AT = "sink.delta.path"
Warehouse = Callable[[str, Changelog], Logs]
"""Returns the logs of the tables under a path: `Lake` without Spark."""
RESYNC = "load all rows again with `sessionlake publish --resync`"


@dataclass(frozen=True)
class Position:
    """The state of the table after a step."""

    step: int
    pipeline: str
    checkpoint_id: str
    """The id of the pipeline with the batch: a rebuilt pipeline has another."""
    rows: str
    """`final`, `changes` or `history`: which rows the table has."""
    without: str | None
    """The rule by which it leaves out rows, as SQL."""
    seen: Visible
    attempt: str
    """The attempt that was committed: another process may make the same step."""
    version: int = -1
    """Of the table; the step's commit made it."""

    @classmethod
    def after(
        cls, before: "Position | None", config: Config, last: BatchCommit, *, anew: bool = False, sink: str = TABLE
    ) -> "Position":
        """Return the position of the next step of a sink, by its name, which leads to a batch. `before` is None if there is no table.

        With `anew` the rows of the table do not count: they may be another pipeline's.
        """
        seen = Visible.of(last, config.section, None if before is None or anew else before.seen)
        return cls(
            1 if before is None else before.step + 1,
            config.pipeline.name,
            last.checkpoint_id,
            rows_of(config, sink),
            config.quarantined_sql(SPARK.micros),
            seen,
            uuid.uuid4().hex,
        )

    def values(self) -> dict[str, Any]:
        """Return it as JSON values, which `read` reads."""
        names = ("step", "pipeline", "checkpoint_id", "rows", "without", "attempt")
        return {**{name: getattr(self, name) for name in names}, "seen": self.seen.text()}

    @classmethod
    def read(cls, values: Mapping[str, Any], version: int = -1) -> "Position":
        """Invert `values`; `version` is that of a Delta table."""
        return cls(**{**values, "seen": Visible.read(values["seen"])}, version=version)

    def metadata(self) -> dict[str, Any]:
        """Return it as the commit of its step has it."""
        return {_SINK: self.values()}

    def require_same(self, config: Config, logs: Logs, last: BatchCommit, sink: str, place: str) -> None:
        """Raise a one-line PipelineStateError if the rows in a sink's place are not what its next step goes on from."""
        same = self.checkpoint_id == last.checkpoint_id and self.seen.batch_id <= last.batch_id
        if not (same and self.seen.is_in(logs)):
            raise PipelineStateError(
                f"sink.{sink}: {place!r} has the rows of another {self.pipeline!r}, which was rebuilt or put back since its batch {self.seen.batch_id}; {RESYNC}"
            )
        if HISTORY in {self.rows, rows_of(config, sink)} and self.rows != rows_of(config, sink):
            lost = "; its versions are lost then" if self.rows == HISTORY else ""
            raise PipelineStateError(
                f"sink.{sink}.history: is {str(self.rows != HISTORY).lower()}, and {place!r} has the rows of {self.rows!r}; {RESYNC}{lost}"
            )
        if self.rows != rows_of(config, sink):
            raise PipelineStateError(
                f"sink.{sink}.emit: is {rows_of(config, sink)!r}, and {place!r} has the rows of {self.rows!r}; {RESYNC}"
            )
        if self.without != config.quarantined_sql(SPARK.micros):
            raise PipelineStateError(
                f"quarantine: has changed, and {place!r} leaves out rows by the old thresholds; {RESYNC}"
            )

    def require(self, config: Config, logs: Logs, table: DeltaLog, last: BatchCommit) -> None:
        """Raise a one-line PipelineStateError if no step of [sink.delta]'s table can go on from here: then it must be loaded again."""
        path = sink_of(config).path
        self.require_same(config, logs, last, TABLE, path)
        foreign = table.foreign_change(self.version)
        if foreign is not None:
            raise PipelineStateError(
                f"sink.delta: version {foreign.version} of {path!r} is a {foreign.operation} of somebody else, so its rows are not the results; {RESYNC}"
            )


def sink_of(config: Config) -> DeltaSink:
    """Return the section of the table; ConfigError if there is none."""
    if config.sink.delta is None:
        raise ConfigError("sink.delta: is missing; add [sink.delta] with path")
    return config.sink.delta


def table_in(config: Config, warehouse: Warehouse) -> DeltaLog:
    """Return the log of the table, which need not be there; without Spark LakeError if it can't be read."""
    folder, _, name = sink_of(config).path.rpartition("/")
    return warehouse(folder, changelog_of(config))[name]


def rows_of(config: Config, sink: str) -> str:
    """Return which rows the table of a sink is to have: `final`, `changes`, or `history`, all versions."""
    if sink == TABLE and config.sink.delta is not None and config.sink.delta.history:
        return HISTORY
    return "final" if config.is_final(sink) else "changes"


def position_of(table: DeltaLog, config: Config) -> Position | None:
    """Return the position of the table; None if there is no table.

    ConfigError if the table is not this pipeline's, PipelineStateError if its log has lost the position.
    """
    if not table.exists():
        return None
    position = newest_position(table)
    if position is None and table.app_version(STEPS) is None:
        raise ConfigError(f"{_AT}: {table.uri!r} is a table that publish has not made; move it, or write another path")
    if position is None:
        raise PipelineStateError(
            f"{_AT}: {table.uri!r} has its position no longer in its log; move it, and publish again"
        )
    if position.pipeline != config.pipeline.name:
        raise ConfigError(f"{_AT}: {table.uri!r} is the table of pipeline {position.pipeline!r}; write another path")
    return position


def newest_position(table: DeltaLog) -> Position | None:
    """Return the position of the table's last step; None if the log has none."""
    for version in table.versions():
        commit = table.commit(version)
        if commit is not None and _SINK in commit.metadata:
            return Position.read(commit.metadata[_SINK], version)
    return None
