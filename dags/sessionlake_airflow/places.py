"""Which places a run may name: directly below one root each. Who may trigger a run must not send tables elsewhere, or bring them from there."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from sessionlake_airflow.configs import PROJECT_FILE, configs_directory

BACKUPS, WAREHOUSES = "directory", "warehouse"
"""The params that name a backup, and a new warehouse."""
PLACE = r"[A-Za-z0-9_][A-Za-z0-9._\-]*"
"""A name of a place: without separators, so that it leads nowhere else."""


def placed(param: str, value: str, config: str) -> str:
    """Return the place that a param names, by its name or with the root before it; ValueError if it is not directly below its root."""
    root = backups_root() if param == BACKUPS else warehouses_root(Path(config))
    name = value.removeprefix(f"{root}/") if root else value
    place = f"{root}/{name}" if root else name
    is_link = "://" not in place and (Path(config).parent / place).is_symlink()
    if re.fullmatch(PLACE, name) is None or is_link:
        advice = "; an administrator may set SESSIONLAKE_BACKUPS" if param == BACKUPS else ""
        raise ValueError(
            f"params: {param} {value!r} is no place directly in {root!r}; write a name there, for example new-1{advice}"
        )
    return place


def backups_root() -> str:
    """Return the path or URI below which backups lie: SESSIONLAKE_BACKUPS, else `backups` beside the configs."""
    return (os.environ.get("SESSIONLAKE_BACKUPS") or str(configs_directory() / "backups")).rstrip("/")


def warehouses_root(config: Path) -> str:
    """Return the path or URI in which the pipeline's warehouse lies, as its config or its project names it.

    Empty if that is the config's own directory, or if this machine does not see the config: then the new one lies beside it.
    """
    for file in (config, config.parent / PROJECT_FILE):
        try:
            content: dict[str, Any] = tomllib.loads(file.read_text())
        except (OSError, ValueError, RecursionError):
            continue
        section = content.get("pipeline")
        named = section.get("warehouse") if isinstance(section, dict) else None
        if isinstance(named, str):
            # A project names the directory of all warehouses, a pipeline its own one.
            return named.rstrip("/") if file.name == PROJECT_FILE else named.rstrip("/").rpartition("/")[0]
    return ""
