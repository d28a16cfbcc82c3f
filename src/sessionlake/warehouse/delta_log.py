"""A table's Delta log, commit by commit: versions, and the metadata that the stream and the jobs write there."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.history import ForeignChange, actions, foreign_change, our_metadata

_COMMIT_FILE = re.compile(r"(\d{20})\.json")
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The session setting with the userMetadata of SQL's commits."""
FENCED = 1 << 62
"""The version of an application that has been kept from appending."""
TERM = "sessionlake/term"
"""The application whose version is the term of the driver that writes the table, a random number; docs/engine.md says what a term is."""


@dataclass(frozen=True)
class Commit:
    """A commit of a Delta table that carries our metadata."""

    version: int
    metadata: dict[str, Any]


def app_id(job: str, run_id: str) -> str:
    """Return the id under which a run of a job appends to tables (Delta's txnAppId)."""
    return f"{job}/{run_id}"


class LogFiles(ABC):
    """The file system from which logs are read."""

    @abstractmethod
    def names(self, uri: str) -> list[str]:
        """Return the names in a directory; none if it is not there."""

    @abstractmethod
    def read_text(self, uri: str) -> str | None:
        """Return a small file's text, or None if there is none."""


class DeltaLog(ABC):
    """A table's log, which need not exist, on whatever reads its files.

    A stream of a trigger of seconds makes hundreds of thousands of commits before Delta removes the oldest ones, and a
    listing of them takes seconds: so versions are asked for one by one, from the last known one on.
    """

    def __init__(self, files: LogFiles, uri: str) -> None:
        self.uri = uri
        """The table's location: a path or an object-store URI."""
        self.name = uri.rpartition("/")[2]
        self._files = files
        self._known = -1

    @abstractmethod
    def app_version(self, app_id: str) -> int | None:
        """Return the last version that an application has written to the table; None if it has not."""

    def exists(self) -> bool:
        """Say whether the table is there."""
        return self.latest_version() >= 0

    def last_commit(self, until: int | None = None) -> Commit | None:
        """Return the commit of the highest batch, or the newest copy of its metadata; up to a version, if given.

        A maintenance job copies the last metadata that it saw (with `copied`). A batch that is committed meanwhile counts
        although its commit is older.
        """
        newest = self.newest_mark(until)
        return newest if newest is not None and "batch_id" in newest.metadata else None

    def newest_mark(self, until: int | None = None) -> Commit | None:
        """Return `last_commit` or, if the table has no batch, the last driver's term; None without either.

        The search ends at a term: its commit has a copy of the last batch's metadata, and Delta refuses it if a batch came
        in between.
        """
        best: Commit | None = None
        for version in self.versions(until):
            commit = self.commit(version)
            if commit is None:
                continue
            # A job's commit on a table that the stream has not written yet has nothing of the stream's to copy.
            has_batch = "batch_id" in commit.metadata
            if has_batch and (best is None or commit.metadata["batch_id"] > best.metadata["batch_id"]):
                best = commit
            if self.term_in(version) is not None:
                return best or commit
            if has_batch and not commit.metadata.get("copied"):
                break
        return best

    def batch_commits(self) -> Iterator[Commit]:
        """Yield the commits of batches, newest first, without copies of their metadata."""
        version = self.latest_version()
        while version >= 0 and self.has(version):
            commit = self.commit(version)
            if commit is not None and self.term_in(version) is not None:
                version = commit.metadata["term"]["mark"]
                continue
            if commit is not None and "batch_id" in commit.metadata and not commit.metadata.get("copied"):
                yield commit
            version -= 1

    def term_in(self, version: int) -> int | None:
        """Return the term that a commit begins; None if it begins none."""
        found = (action["version"] for action in self._actions(version, "txn") if action["appId"] == TERM)
        return next(found, None)

    def commits(self, after_version: int = -1) -> Iterator[Commit]:
        """Yield our commits newer than a version, oldest first, copies of their metadata left out."""
        for version in self._since(after_version):
            commit = self.commit(version)
            if commit is not None and not commit.metadata.get("copied"):
                yield commit

    def versions(self, until: int | None = None) -> Iterator[int]:
        """Yield the versions whose commits the log still has singly, newest first; up to a version, if given."""
        latest = self.latest_version()
        for version in range(latest if until is None else min(until, latest), -1, -1):
            if not self.has(version):
                return
            yield version

    def latest_version(self) -> int:
        """Return the newest version; -1 if there is no table.

        Versions follow each other without a gap, so that it is found in few steps from one that is known: the last that
        was found here, or that of Delta's last checkpoint.
        """
        version = self._known if self._known >= 0 and self.has(self._known) else self._checkpointed()
        if version < 0:
            return -1
        step = 1
        while self.has(version + step):
            version, step = version + step, 2 * step
        while step := step // 2:
            version += step if self.has(version + step) else 0
        self._known = version
        return version

    def commit(self, version: int) -> Commit | None:
        """Return our metadata of a commit; None if the commit does not exist or carries none."""
        metadata = our_metadata((self.commit_info(version) or {}).get("userMetadata"), self.name)
        return Commit(version, metadata) if metadata else None

    def foreign_change(self, after: int | None = None, until: int | None = None) -> ForeignChange | None:
        """Return the first change of rows that is not ours in the versions (after, until].

        By default from the last batch, or the last driver's term, up to now. The writer of that commit has checked the log before it, so
        only the end of a long log need be read.
        """
        after = self._known_until() if after is None else after
        wanted = [v for v in self._since(after) if until is None or v <= until]
        return foreign_change(self.name, ((v, self.text(v) or "") for v in wanted), after)

    def refuse_foreign_change(self, after: int | None = None, until: int | None = None) -> None:
        """Raise PipelineStateError if `foreign_change` finds one."""
        found = self.foreign_change(after, until)
        if found is not None:
            raise PipelineStateError(found.explained(self.uri))

    def _known_until(self) -> int:
        """Return the version up to which the log was examined, by our last batch or term; without any, the version before the log begins."""
        version = 0
        for version in self.versions():
            commit = self.commit(version)
            if commit is None:
                continue
            if not commit.metadata.get("copied") or self.term_in(version) is not None:
                return int(commit.metadata.get("follows", version))
        return version - 1

    def commit_info(self, version: int) -> dict[str, Any] | None:
        """Return Delta's own record of a commit: timestamp (ms), operation, operationMetrics, userMetadata."""
        return next(self._actions(version, "commitInfo"), None)

    def newest_txn(self, app_id: str) -> int | None:
        """Return an application's last version among the commits that the log still has singly; None if there is none.

        It reads a file or two. To read the table's state instead would cost a Spark job.
        """
        for version in self.versions():
            for action in self._actions(version, "txn"):
                if action["appId"] == app_id:
                    return int(action["version"])
        return None

    def added_since(self, version: int) -> set[str]:
        """Return the names of the files that commits from a version on have added."""
        return set().union(*self.files_added(version).values())

    def files_added(self, version: int) -> dict[int, set[str]]:
        """Return the names of the files that each commit from a version on has added."""
        versions = self._since(version - 1)
        return {v: {add["path"].rpartition("/")[2] for add in self._actions(v, "add")} for v in versions}

    def files_touched(self, version: int) -> set[str] | None:
        """Return the names of the files that a commit has added or removed; None if it changes the table's metadata, or is gone."""
        text, where = self.text(version), f"{self.name}: {self._file(version)!r}"
        if text is None or any(any(actions(text, kind, where)) for kind in ("metaData", "protocol")):
            return None
        return {a["path"].rpartition("/")[2] for kind in ("add", "remove") for a in actions(text, kind, where)}

    def _actions(self, version: int, kind: str) -> Iterator[dict[str, Any]]:
        """Yield a commit's actions of a kind; none if its file is gone."""
        return actions(self.text(version) or "", kind, f"{self.name}: {self._file(version)!r}")

    def text(self, version: int) -> str | None:
        """Return a commit's text; None if its file is gone."""
        return self._files.read_text(self._file(version))

    def _file(self, version: int) -> str:
        return f"{self.uri}/_delta_log/{version:020d}.json"

    def has(self, version: int) -> bool:
        """Say whether the log has a version's commit."""
        return self.text(version) is not None

    def _since(self, version: int) -> range:
        """Return the versions after one whose commits the log still has."""
        first, latest = max(version + 1, 0), self.latest_version()
        if first <= latest and not self.has(first):
            first = min(self._log_files(), default=latest + 1)
        return range(first, latest + 1)

    def _checkpointed(self) -> int:
        """Return the version of Delta's last checkpoint; without it the newest listed version, -1 without any."""
        text = self._files.read_text(f"{self.uri}/_delta_log/_last_checkpoint")
        try:
            version = int(json.loads(text or "{}")["version"])
        except (ValueError, KeyError):
            version = -1
        return version if version >= 0 and self.has(version) else max(self._log_files(), default=-1)

    def _log_files(self) -> set[int]:
        names = self._files.names(f"{self.uri}/_delta_log")
        return {int(match[1]) for match in map(_COMMIT_FILE.fullmatch, names) if match}


class Logs(LogFiles):
    """The logs of a warehouse's tables, by the tables' names."""

    warehouse: str
    """The path or object-store URI that the tables lie under."""
    changelog: Changelog
    """The changelog of the pipeline whose tables these are."""

    @abstractmethod
    def __getitem__(self, name: str) -> DeltaLog:
        """Return a table's log, whether the table is there or not."""
