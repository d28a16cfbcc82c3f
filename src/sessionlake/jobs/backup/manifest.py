"""A backup's manifest: pipeline, batch, and each file with length and checksum; and many files copied at once, with progress."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import JobError
from sessionlake.warehouse.history import check_format, stamp

MANIFEST, INCOMPLETE = "manifest.json", "backup.incomplete"
WAREHOUSE, CHECKPOINT = "warehouse", "checkpoint"
"""Folders of a backup."""


@dataclass(frozen=True)
class SavedFile:
    """A file of a backup."""

    path: str
    """Relative to the backup's directory."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The description of a complete backup."""

    pipeline: str
    batch_id: int
    commit_id: str
    """Of the last batch that is in it."""
    saved_us: int
    versions: dict[str, int]
    """By table."""
    files: list[SavedFile] = field(default_factory=list)

    def text(self) -> str:
        """Return it as JSON, with the format."""
        return json.dumps({**stamp(), **asdict(self)}, indent=1)


class Files(Protocol):
    """The file operations that reading a backup needs, on Spark's file systems or on this machine's."""

    def read_text(self, uri: str) -> str | None:
        """Return a small file's text, or None if there is none."""

    def lengths(self, uri: str) -> dict[str, int]:
        """Return the bytes of all files below a folder, by their paths relative to it."""


class LocalFiles:
    """Files of this machine, read without Spark; see `Files` for the methods."""

    def read_text(self, uri: str) -> str | None:
        """Return a file's text."""
        file = Path(uri)
        return file.read_text() if file.is_file() else None

    def lengths(self, uri: str) -> dict[str, int]:
        """Return the files' bytes."""
        root = Path(uri)
        return {str(file.relative_to(root)): file.stat().st_size for file in root.rglob("*") if file.is_file()}


def check_backup(files: Files, config: Config, directory: str) -> Manifest:
    """Return the manifest of a backup of a config's pipeline; JobError if it is none."""
    manifest = read_manifest(files, directory)
    if manifest.pipeline != config.pipeline.name:
        raise JobError(
            f"restore: {directory!r} is a backup of pipeline {manifest.pipeline!r}, not {config.pipeline.name!r}; name that one's config"
        )
    return manifest


def read_manifest(tables: Files, directory: str) -> Manifest:
    """Return a backup's manifest; JobError if the backup is none, half-made, or lacks a file."""
    if tables.read_text(f"{directory}/{INCOMPLETE}") is not None:
        raise JobError(
            f"backup: {directory!r} is half-made; run `sessionlake backup` with it again, or name another one"
        )
    text = tables.read_text(f"{directory}/{MANIFEST}")
    if text is None:
        raise JobError(f"backup: {directory!r} holds no {MANIFEST}; name the directory of a backup")
    try:
        raw: dict[str, Any] = json.loads(text)
        check_format(raw, f"backup: {directory!r}")
        files = [SavedFile(**file) for file in raw.pop("files")]
        manifest = Manifest(files=files, **{k: v for k, v in raw.items() if k not in stamp()})
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"backup: {directory!r} has a damaged {MANIFEST} ({error}); use another backup") from error
    _check_lengths(tables, directory, manifest)
    return manifest


def _check_lengths(tables: Files, directory: str, manifest: Manifest) -> None:
    found = tables.lengths(directory)
    for file in manifest.files:
        if found.get(file.path) != file.bytes:
            raise JobError(
                f"backup: file {file.path!r} of {directory!r} is missing or of another length; use another backup"
            )


_AT_ONCE = 8

OnFile = Callable[[int, int], None]
"""Takes the number of files done and of all."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(action: Callable[[Item], Result], items: Sequence[Item], point: str, on_file: OnFile) -> list[Result]:
    """Return an action's results for items, in their order; the first failure, or an interrupt, ends it."""
    found: list[Result] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(action, item) for item in items]
        try:
            for future in futures:
                found.append(future.result())
                failpoints.hit(point)
                on_file(len(found), len(items))
        finally:
            for future in futures:
                future.cancel()
    return found
