"""Rebuild: a new warehouse beside the old one from all events, after a change that old sessions can't follow; then the switch."""

import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from sessionlake import schemas
from sessionlake.config import Config, load_config, parse_config
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, JobError
from sessionlake.jobs.sessionizer.run import OnCommit, RunSummary, run
from sessionlake.tables import Tables

_SECTION = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_WAREHOUSE = re.compile(r"(\s*warehouse\s*=\s*)(\"(?:[^\"\\]|\\.)*\"|'[^']*')(\s*(?:#.*)?)", re.DOTALL)


@dataclass(frozen=True)
class Switch:
    """The edit that makes a config use another warehouse."""

    line: int
    """1-based number of the line that changes."""
    before: str
    after: str
    text: str
    """The whole file with the line changed."""


def rebuild(
    spark: SparkSession, config_path: str | Path, warehouse: str, *, on_commit: OnCommit | None = None
) -> tuple[RunSummary, Switch]:
    """Sessionize all events into a new warehouse under the config as it is now; return what came out and the switch.

    The old warehouse stays as it is. Events only: what corrections did there is not repeated. A rebuild that was killed
    is to be started again on another path, or after the remains were removed. Raises JobError where the new warehouse
    has tables already.
    """
    switch = plan_switch(config_path, warehouse)
    config = switched(config_path, switch)
    old = load_config(config_path)
    if config.pipeline.warehouse == old.pipeline.warehouse:
        raise JobError(f"--warehouse: {warehouse!r} is the pipeline's warehouse; write a path that is not in use")
    tables = Tables(spark, config.pipeline.warehouse)
    taken = [name for name in schemas.TABLES if tables.exists(name)]
    if taken:
        raise JobError(
            f"--warehouse: {warehouse!r} has a table {taken[0]!r} already; choose a new path or remove that directory"
        )
    failpoints.hit("rebuild_before_bootstrap")
    building = _own_store(config)
    try:
        summary = run(spark, building, bootstrap=True, on_commit=on_commit)
    finally:
        shutil.rmtree(building.pipeline.store, ignore_errors=True)
    failpoints.hit("rebuild_after_bootstrap")
    return summary, switch


def _own_store(config: Config) -> Config:
    """Return the config with a store directory beside the pipeline's: its stream may be running, and holds that one.

    After the switch the stream restores its stores from the new tables.
    """
    store = f"{config.pipeline.store}/.rebuild-{os.getpid()}"
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"store": store})})


def plan_switch(config_path: str | Path, warehouse: str) -> Switch:
    """Return the edit of the line `warehouse = ...` in section [pipeline]; ConfigError where it can't be found."""
    file = Path(config_path)
    try:
        lines = file.read_text().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(
            f"config: {str(config_path)!r} can't be read ({error.strerror}); pass the path of a TOML file"
        ) from error
    section = ""
    for number, line in enumerate(lines):
        header = _SECTION.fullmatch(line.rstrip("\n"))
        if header:
            section = header[1]
        found = _WAREHOUSE.fullmatch(line) if section == "pipeline" else None
        if found:
            after = f"{found[1]}{_quoted(warehouse)}{found[3]}"
            text = "".join([*lines[:number], after, *lines[number + 1 :]])
            if _warehouse_of(text, config_path) != warehouse:
                break
            return Switch(number + 1, line.rstrip("\n"), after.rstrip("\n"), text)
    raise ConfigError(
        f'config: {str(config_path)!r} has no line `warehouse = "..."` in section [pipeline] that could be switched; write one'
    )


def _warehouse_of(text: str, config_path: str | Path) -> object:
    try:
        return tomllib.loads(text)["pipeline"]["warehouse"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config: {str(config_path)!r} is no valid TOML ({error}); mend that line") from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def switched(config_path: str | Path, switch: Switch) -> Config:
    """Return the config as it is after the switch."""
    return parse_config(tomllib.loads(switch.text), Path(config_path).resolve().parent)


def apply_switch(config_path: str | Path, switch: Switch) -> None:
    """Write the switched config in the place of the old one, whole or not at all; permissions and links stay."""
    file = Path(config_path).resolve()
    if file.read_text().splitlines()[switch.line - 1 : switch.line] != [switch.before]:
        raise JobError(f"config: {str(config_path)!r} has changed meanwhile; edit line {switch.line} yourself")
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w") as out:
            out.write(switch.text)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(file.stat().st_mode & 0o7777)
        failpoints.hit("rebuild_before_switch")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
