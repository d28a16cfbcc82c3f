"""The line that each command prints if it is stopped (the state of its work, and what to do), and its exit code."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake import stopping
from sessionlake.config.operators import OPERATORS
from sessionlake.jobs.registry import JOBS

_REST = "the committed part stays, start it again for the rest"
_READS = "it only reads, and nothing was changed"
_LEFT: Mapping[str, str] = {
    "run": "nothing is lost, `sessionlake run` goes on from here",
    "bootstrap": "its one batch was not committed, start it again",
    "publish": "nothing is lost, `sessionlake publish` goes on from here",
    "compact": _REST,
    "reprocess-late": _REST,
    "redeem": _REST,
    "expire": _REST,
    "backfill": _REST,
    "forget": "the keys are not yet removed everywhere, start it again with the same keys",
    "quality": "there is no verdict, start it again",
    "rebuild": "nothing was made yet, start it again",
    "backup": "{directory} is no backup yet, start it again with the same directory",
    "restore": "nothing was put back, start it again",
    "init": "nothing was written, start it again",
    "sql": _READS,
    **{entry.rows.command: _READS for entry in OPERATORS.values()},
    "status": _READS,
    "views": _READS,
    "register": "what it has made stays, start it again for the rest",
    "check": _READS,
    "graph": _READS,
    "show": _READS,
    "plan": _READS,
    "completion": _READS,
    "files": "the copied files stay, start it again for the rest",
    "jars": "the complete jars stay, start it again for the rest",
    "fast-start": "no archive was made, start it again",
    "demo": "start it again, it replaces {directory}",
}
"""The state of the work, unless `stopping.leaves` has set a more exact one; braces hold names of options and operands."""
_DRY = "a dry run writes nothing"
_UNTIL_STOPPED = ("run", "publish", "serve", "metrics")
"""They end by a signal only, unless --once is given."""
UNREAD = 128 + signal.SIGPIPE
"""The exit code of a command that only reads, if the reader of its output has ended first: that of Unix's tools."""
_RECORDED = {job.command for job in JOBS if job.recorded}


@dataclass(frozen=True)
class Command:
    """A command as it was called."""

    name: str
    params: Mapping[str, Any]

    @property
    def runs_until_stopped(self) -> bool:
        """Say whether a signal is its usual end, and so no failure."""
        given = self.params.get
        if self.name == "status":
            return bool(given("watch"))
        return given("what") == "serve" if self.name == "demo" else self.name in _UNTIL_STOPPED and not given("once")

    @property
    def only_reads(self) -> bool:
        """Say whether its output is all that it does."""
        return _LEFT.get(self.name) == _READS and not self.params.get("write")


def line(command: Command | None) -> str:
    """Return the line: the command, that it was stopped, the state of its work and the next action."""
    if command is None:
        return "stopped; nothing was done"
    said = _standing(command)
    return f"{command.name}: stopped; {said}" if said else f"{command.name}: stopped"


def exit_code(command: Command | None, number: int) -> int:
    """Return 0 for a command that runs until it is stopped, otherwise the exit code of shells for the signal: 130 or 143."""
    return 0 if command is not None and command.runs_until_stopped else 128 + number


def _standing(command: Command) -> str | None:
    if command.params.get("dry_run"):
        return _DRY
    if command.runs_until_stopped and command.name in ("status", "demo"):
        return None
    said = stopping.left() or _LEFT.get(command.name, "").format_map(command.params)
    run_id = stopping.run_id() if command.name in _RECORDED else None
    return said if run_id is None else f"{said} (as the same run with `--run-id {run_id}`)"
