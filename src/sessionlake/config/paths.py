"""Paths of a config, and the path of local stores, which may hold variables that every machine replaces from its own environment."""

import os
import re
from pathlib import Path
from string import Template

from sessionlake.errors import ConfigError, StoreError


def check_store_path(path: str) -> None:
    """Raise ConfigError if a store's path is no local one, or has a `$` that starts no variable."""
    if "://" in path:
        raise ConfigError(f"pipeline.store: {path!r} must be a local directory; write a path")
    if "$$" in path or not Template(path).is_valid():
        raise ConfigError(
            f"pipeline.store: {path!r} has a '$' that names no variable; write for example '${{SESSIONLAKE_STORE}}/clicks'"
        )


def resolved(path: str, directory: Path) -> str:
    """Return a path as it is if it is a URI, else absolute; relative ones are relative to `directory`."""
    return path.rstrip("/") if "://" in path else str((directory / path).resolve())


def unset_variables(path: str) -> list[str]:
    """Return the path's variables that this process's environment lacks or has empty."""
    return [name for name in Template(path).get_identifiers() if not os.environ.get(name)]


def expanded(path: str) -> str:
    """Return the path as it is on this machine; StoreError if a variable is not set or the path is relative."""
    unset = unset_variables(path)
    if unset:
        raise StoreError(
            f"pipeline.store: {path!r} needs the variable {unset[0]!r} on the machines of the executors; "
            f"set it in the workers' environment, or for all of them by spark.executorEnv.{unset[0]}"
        )
    # Safe: the config's own directory, which a relative path was resolved against, may have a `$` in its name.
    found = Template(path).safe_substitute(os.environ)
    if not Path(found).is_absolute():
        raise StoreError(f"pipeline.store: {path!r} is {found!r} here; let its variables hold an absolute path")
    return found


def make_private(path: Path) -> None:
    """Make a directory, and those above it that are missing, for this user alone; one that is there stays as it is."""
    for parent in [*reversed(path.parents), path]:
        if not parent.exists():
            parent.mkdir(mode=0o700, exist_ok=True)


def normal_path(path: str) -> str:
    """Return a path or URI in a normal form: two names of one place become equal.

    >>> normal_path("s3a://lake/clicks/"), normal_path("file:///lake/clicks")
    ('s3://lake/clicks', '/lake/clicks')
    """
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:(//)?", "", path)).rstrip("/")


def is_remote(path: str) -> bool:
    """Say whether a path or URI lies in an object store, and not on a disk.

    >>> is_remote("s3a://lake/clicks"), is_remote("file:///lake/clicks")
    (True, False)
    """
    return "://" in normal_path(path)
