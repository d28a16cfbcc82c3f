"""A table's history from its commits: our metadata and its format, and changes by other writers.

It needs only the text of Delta's commit files, so it works with every engine.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from typing import Any

from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.dialects import SPARK

OLDEST_FORMAT, FORMAT = 2, 5
_LAYOUTS, _SHAPES, _SECRETS = 3, 4, 5
"""The oldest and the newest format of tables, checkpoints and backups that this package reads.

Version 0.2 was the first to write format 2. Metadata without a format is older. Format 3 has states of several layouts, and only
commits that have those are of it: a pipeline to which no aggregate was added can still be read by version 0.2. In format 4 a
computed column has had several texts. In format 5 identities of events are hashed under a secret: a release that does not know of
it would find no duplicate.
"""
_KEY = "sessionlake"
"""The key of our metadata in the userMetadata of a commit. Other writers' keys are left as they are."""


@dataclass(frozen=True)
class ForeignChange:
    """A commit by another writer that changed a table's rows and that nobody has undone."""

    table: str
    version: int
    operation: str
    restorable: int | None
    """The version whose restoring undoes it; None if commits of ours follow, whose rows that would lose."""

    def explained(self, path: str) -> str:
        """Return a one-line message: the change, and the remedy."""
        what = f"table {self.table!r}: version {self.version} is a {self.operation} that is not sessionlake's: sessions would be lost or doubled unseen; "
        if self.restorable is None:
            return f"{what}batches came after it: put a backup back, or rebuild the tables with `sessionlake rebuild` (docs/recovery.md)"
        return f"{what}undo it by `restore table delta.{SPARK.named(path)} to version as of {self.restorable}`, or put a backup back (docs/recovery.md)"


def user_metadata(metadata: Mapping[str, Any]) -> str:
    """Return a commit's userMetadata; it names the format."""
    settings = metadata.get("settings") or {}
    has_secret = settings.get("unique_secret") and settings.get("unique_since")
    present = ((_SECRETS, has_secret), (_SHAPES, settings.get("shapes")), (_LAYOUTS, settings.get("layouts")))
    number = next((format_ for format_, is_used in present if is_used), OLDEST_FORMAT)
    return json.dumps({_KEY: {**metadata, **stamp(number)}})


def our_metadata(written: str | None, table: str) -> dict[str, Any] | None:
    """Return our metadata of a commit's userMetadata; None if it has none.

    Raises PipelineStateError if this package does not read its format.
    """
    try:
        metadata = json.loads(written)[_KEY] if written else None
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(metadata, dict):
        check_format(metadata, f"table {table!r}")
        return metadata
    return None


def stamp(number: int = OLDEST_FORMAT) -> dict[str, Any]:
    """Return the fields of our metadata with its format and the version of sessionlake that reads it."""
    return {"format": number, "written_by": installed_version("sessionlake")}


def check_format(written: Mapping[str, Any], where: str) -> None:
    """Raise PipelineStateError if something carries a format that this package does not read."""
    format_ = written.get("format", 0)
    if format_ < OLDEST_FORMAT:
        raise PipelineStateError(
            f"{where}: is of format {format_}, and sessionlake {installed_version('sessionlake')} reads formats from {OLDEST_FORMAT} on, "
            "those of version 0.2 and later; build the tables again from the events with `sessionlake rebuild CONFIG --warehouse NEW`"
        )
    if format_ > FORMAT:
        needed = written.get("written_by", "a newer version")
        raise PipelineStateError(
            f"{where}: is of format {format_}, and sessionlake {installed_version('sessionlake')} knows formats up to {FORMAT}; "
            f"install sessionlake {needed} or later"
        )


def foreign_change(table: str, commits: Iterable[tuple[int, str]], good: int) -> ForeignChange | None:
    """Return the first change of rows that is not ours and stands, in commits (version, text) in ascending order.

    `good` is the version before the first of them. A RESTORE to a version with the rows that were there before a
    foreign change undoes it. Commits that change no row (OPTIMIZE, VACUUM, properties) may be anybody's.
    """
    # Versions from same_since to good have the rows that we wrote last: whichever of them is restored, nothing is lost.
    change: ForeignChange | None = None
    same_since = good
    for version, text in commits:
        commit = _Commit.of(text, f"table {table!r}, version {version}")
        if not commit.changes_rows:
            good = good if change else version
        elif commit.is_ours(table):
            if change:
                change = ForeignChange(table, change.version, change.operation, None)
            else:
                same_since = good = version
        elif commit.restores is not None and same_since <= commit.restores <= good and not _is_final(change):
            change, good = None, version
        elif change is None:
            change = ForeignChange(table, version, commit.operation, good if good >= 0 else None)
    return change


def _is_final(found: ForeignChange | None) -> bool:
    """Say whether a change can't be undone by a RESTORE any more."""
    return found is not None and found.restorable is None


@dataclass(frozen=True)
class _Commit:
    """The parts of a commit's text that are read."""

    info: dict[str, Any]
    changes_rows: bool

    @classmethod
    def of(cls, text: str, where: str) -> "_Commit":
        info: dict[str, Any] = next(actions(text, "commitInfo", where), {})
        files = (action for kind in ("add", "remove") for action in actions(text, kind, where))
        return cls(info, any(file.get("dataChange", True) for file in files))

    @property
    def operation(self) -> str:
        return str(self.info.get("operation", "change without a name"))

    @property
    def restores(self) -> int | None:
        """The restored version of the commit, if its number was given."""
        version = self.info.get("operationParameters", {}).get("version")
        return int(version) if self.operation == "RESTORE" and version is not None else None

    def is_ours(self, table: str) -> bool:
        return our_metadata(self.info.get("userMetadata"), table) is not None


def actions(text: str, kind: str, where: str) -> Iterator[dict[str, Any]]:
    """Yield a commit's actions of a kind; PipelineStateError if the text is no commit's."""
    # Only the lines of this kind are parsed; split at line feeds alone, for a key may hold other separators of lines.
    for line in text.split("\n"):
        if line.startswith(f'{{"{kind}":'):
            try:
                yield json.loads(line)[kind]
            except ValueError as error:
                raise PipelineStateError(
                    f"{where} is cut off or damaged ({error}); bring that commit back from a backup or the storage's older versions"
                ) from error
