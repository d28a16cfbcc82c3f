"""Runs that let events come once more, as job_runs records them. Light: `status` imports it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake.warehouse.delta_log import FENCED

NUMBER = "number"
"""The name under which a run pins its place in the order of runs, which is independent of hosts' clocks."""


@dataclass(frozen=True)
class RecordedRun:
    """A run that has started. It takes effect once it has appended to its tables."""

    job: str
    run_id: str
    pinned: Mapping[str, Any]
    versions: Mapping[str, int | None]
    """By table: the version of its append, FENCED if it can't append any more, None if neither has happened."""

    @property
    def number(self) -> int:
        """The place in the order of runs; runs that started at once may have the same."""
        number: int = self.pinned[NUMBER]
        return number

    @property
    def order(self) -> tuple[int, str, str]:
        """The order in which runs take effect."""
        return self.number, self.job, self.run_id

    @property
    def alive(self) -> bool:
        """Whether the run has appended, or still may."""
        return any(version != FENCED for version in self.versions.values())


def started_runs(job_runs: str, jobs: Mapping[str, object]) -> str:
    """Return the query of the started runs of jobs: job, run_id, pinned."""
    names = ", ".join(f"'{job}'" for job in jobs)
    return f"select job, run_id, pinned from {job_runs} where job in ({names}) and event = 'started'"  # noqa: S608
