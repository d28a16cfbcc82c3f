"""The order in which runs take effect: each run takes what no run before it has taken.

A run pins a number, one more than the largest that it sees, because hosts' clocks may differ. It then claims: it fences
the unfinished runs before it, and gives way to later runs. What runs have taken is derived from their pins and appends,
never from a flag.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark.sql import DataFrame

from sessionlake.errors import OvertakenError
from sessionlake.jobs.again.runs import NUMBER, RecordedRun, started_runs
from sessionlake.jobs.run import JobRun
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import app_id
from sessionlake.warehouse.tables import Tables

R = TypeVar("R", bound=RecordedRun)


@dataclass(frozen=True)
class Claims(Generic[R]):
    """The runs of jobs that share an order."""

    writes: Mapping[str, tuple[str, ...]]
    """The tables to which each job appends; its appends there make a run take effect."""
    kind: type[R]

    def runs(self, tables: Tables) -> list[R]:
        """Return all recorded runs, in their order."""
        if not tables[schemas.JOB_RUNS].exists():
            return []
        rows = tables.spark.sql(started_runs(tables[schemas.JOB_RUNS].sql_name(), self.writes)).collect()
        ids = [app_id(row.job, row.run_id) for row in rows]
        appended = {table: tables[table].app_versions(ids) for table in {*sum(self.writes.values(), ())}}
        runs = []
        for row, id_ in zip(rows, ids, strict=True):
            versions = {table: appended[table].get(id_) for table in self.writes[row.job]}
            runs.append(self.kind(row.job, row.run_id, json.loads(row.pinned), versions))
        return sorted(runs, key=lambda run: run.order)

    def next_number(self, tables: Tables) -> int:
        """Return a number, for a run to pin as NUMBER, above the numbers of all recorded runs."""
        return 1 + max((run.number for run in self.runs(tables)), default=0)

    def before(self, run: JobRun) -> list[R]:
        """Return the runs that take effect before a run, in their order."""
        ours = (run.pinned[NUMBER], run.job, run.run_id)
        return [other for other in self.runs(run.tables) if other.order < ours]

    def claim(self, run: JobRun) -> None:
        """Fence the unfinished runs before a run: from here on, the work of those runs no longer changes. A dry run fences nothing.

        Every run is recorded before it claims. If two runs start at once, at least one therefore sees the other. The
        later one fences the earlier one, and an earlier one that sees a later one gives way. Raises OvertakenError if
        this run has to give way.
        """
        if run.dry_run:
            return
        runs = self.runs(run.tables)
        ours = next(other for other in runs if (other.job, other.run_id) == (run.job, run.run_id))
        later = [other for other in runs if other.order > ours.order and other.alive]
        if later and None in ours.versions.values():
            raise _overtaken(run, later[-1])
        _fence(run.tables, (other for other in runs if other.order < ours.order))

    def fence(self, tables: Tables) -> None:
        """Keep unfinished runs from appending rows that they read before now; for a job that erases rows."""
        _fence(tables, self.runs(tables))

    def append(self, run: JobRun, table: str, rows: DataFrame) -> None:
        """Append a claimed run's rows once; OvertakenError if another run has fenced this one."""
        if not run.append_unless_fenced(table, rows):
            last = self.runs(run.tables)[-1]
            raise _overtaken(run, None if (last.job, last.run_id) == (run.job, run.run_id) else last)


def _fence(tables: Tables, runs: Iterable[RecordedRun]) -> None:
    for run in runs:
        for table in (table for table, version in run.versions.items() if version is None):
            tables[table].fence(app_id(run.job, run.run_id))


def _overtaken(run: JobRun, by: RecordedRun | None) -> OvertakenError:
    whom = "an erasure (`forget`)" if by is None else f"run {by.run_id!r} of {by.job}"
    return OvertakenError(
        f"--run-id: {run.run_id!r} of {run.job} was overtaken by {whom}, started after it; "
        "its remaining work is left to the next run, start that under a new id"
    )
