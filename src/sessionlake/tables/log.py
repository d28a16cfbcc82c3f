"""What the tables' logs say, commit by commit: versions, and the metadata that the stream and the jobs leave there."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake.errors import PipelineStateError
from sessionlake.tables.files import Files

_COMMIT_FILE = re.compile(r"(\d{20})\.json")
_KEY = "sessionlake"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting of a session that gives commits of SQL their userMetadata."""


@dataclass(frozen=True)
class Commit:
    """A commit of a Delta table that carries our metadata."""

    version: int
    metadata: dict[str, Any]


def user_metadata(metadata: Mapping[str, Any]) -> str:
    """Return the text that a commit carries as its userMetadata."""
    return json.dumps({_KEY: metadata})


class Log(Files):
    """The logs of a warehouse's tables."""

    def exists(self, name: str) -> bool:
        """Say whether the table is there."""
        return bool(self._log_files(name))

    def last_commit(self, name: str) -> Commit | None:
        """Return the commit of the highest batch, or the newest copy of its metadata.

        A maintenance job copies (with `copied`) what it saw last; a batch committed beside it counts though it is older.
        """
        best: Commit | None = None
        for version in sorted(self._log_files(name), reverse=True):
            commit = self.commit(name, version)
            # A job's commit on a table that the stream has not written yet has nothing of the stream's to copy.
            if commit is None or "batch_id" not in commit.metadata:
                continue
            if best is None or commit.metadata["batch_id"] > best.metadata["batch_id"]:
                best = commit
            if not commit.metadata.get("copied"):
                break
        return best

    def commits(self, name: str, after_version: int = -1) -> Iterator[Commit]:
        """Yield our commits newer than a version, oldest first, copies of their metadata left out."""
        for version in sorted(v for v in self._log_files(name) if v > after_version):
            commit = self.commit(name, version)
            if commit is not None and not commit.metadata.get("copied"):
                yield commit

    def versions(self, name: str) -> list[int]:
        """Return the versions whose commits the log still has one by one, newest first."""
        return sorted(self._log_files(name), reverse=True)

    def latest_version(self, name: str) -> int:
        """Return the newest version; -1 where there is no table."""
        return max(self._log_files(name), default=-1)

    def commit(self, name: str, version: int) -> Commit | None:
        """Return our metadata of one commit; None where the commit does not exist or carries none."""
        written = (self.commit_info(name, version) or {}).get("userMetadata")
        try:
            metadata = json.loads(written)[_KEY] if written else None
        except (ValueError, KeyError, TypeError):
            metadata = None
        return Commit(version, metadata) if metadata else None

    def commit_info(self, name: str, version: int) -> dict[str, Any] | None:
        """Return what Delta wrote of one commit: timestamp (ms), operation, operationMetrics, userMetadata."""
        return next(self._actions(name, version, "commitInfo"), None)

    def added_since(self, name: str, version: int) -> set[str]:
        """Return the names of the files that commits from a version on have added."""
        versions = (v for v in self._log_files(name) if v >= version)
        return {add["path"].rpartition("/")[2] for v in versions for add in self._actions(name, v, "add")}

    def _actions(self, name: str, version: int, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the actions of one kind of a commit; none where its file is gone."""
        file = f"{self.path(name)}/_delta_log/{version:020d}.json"
        for line in (self.read_text(file) or "").split("\n"):
            if line.startswith(f'{{"{kind}":'):
                try:
                    yield json.loads(line)[kind]
                except ValueError as error:
                    raise PipelineStateError(
                        f"{name}: {file!r} is cut off or damaged ({error}); bring that commit back from a backup or the storage's older versions"
                    ) from error

    def _log_files(self, name: str) -> set[int]:
        names = self.names(f"{self.path(name)}/_delta_log")
        return {int(match[1]) for match in map(_COMMIT_FILE.fullmatch, names) if match}
