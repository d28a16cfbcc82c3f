"""Rebuild: a new warehouse beside the old one from all events, after a change that old sessions can't follow; then the switch."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config, parse_config, parse_toml, read_text
from sessionlake.config.paths import expanded, unset_variables
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, JobError
from sessionlake.operators.run import run
from sessionlake.stopping import leaves
from sessionlake.stream.run import OnCommit, RunSummary
from sessionlake.warehouse.tables import Tables


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
    spark: SparkSession,
    config_path: str | Path,
    warehouse: str,
    *,
    from_topic: bool = False,
    on_commit: OnCommit | None = None,
) -> tuple[RunSummary, Switch]:
    """Sessionize all events into a new warehouse under the config as it is now; return what came out and the switch.

    The old warehouse stays as it is. Events only: what corrections did there is not repeated. A rebuild that was killed
    is to be started again on another path, or after the remains were removed. Raises JobError where the new warehouse
    has tables already, and where the events come from a topic, which may have forgotten some, unless `from_topic`.
    """
    switch = plan_switch(config_path, warehouse)
    config = switched(config_path, switch)
    old = load_config(config_path)
    if config.pipeline.warehouse == old.pipeline.warehouse:
        raise _in_use(warehouse)
    if from_topic and not config.topics:
        raise JobError("--from-topic: goes with source.kind 'kafka' only; remove it")
    if config.topics and not from_topic:
        raise JobError(
            f"source.topic: {config.topics[0]!r} may have lost events that sessions were made of, and a rebuild doesn't read the archive; "
            "keep the old warehouse, or pass --from-topic to build from what the topic still holds"
        )
    tables = Tables.of(spark, config)
    taken = sorted(name for name in tables.names(config.pipeline.warehouse) if tables[name].exists())
    if taken:
        raise JobError(
            f"--warehouse: {warehouse!r} has a table {taken[0]!r} already; choose a new path or remove that directory"
        )
    failpoints.hit("rebuild_before_bootstrap")
    leaves(f"{warehouse} is half made: remove it and start again; the pipeline's own warehouse is as it was")
    building = _own_store(config)
    try:
        summary = run(spark, building, bootstrap=True, on_commit=on_commit)
    finally:
        _remove_store(building)
    leaves(f"{warehouse} is whole, and the config does not name it yet: write it into line {switch.line}")
    failpoints.hit("rebuild_after_bootstrap")
    return summary, switch


def _own_store(config: Config) -> Config:
    """Return the config with a store directory beside the pipeline's: its stream may be running, and holds that one.

    After the switch the stream restores its stores from the new tables.
    """
    store = f"{config.pipeline.store}/.rebuild-{os.getpid()}"
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"store": store})})


def _remove_store(config: Config) -> None:
    """Remove the lock and the stores of a rebuild that lie on this machine."""
    shutil.rmtree(Path(config.lock_dir).parent, ignore_errors=True)
    if not unset_variables(config.pipeline.store):
        shutil.rmtree(expanded(config.pipeline.store), ignore_errors=True)


def plan_switch(config_path: str | Path, warehouse: str) -> Switch:
    """Return the edit of `warehouse` in section [pipeline]; comments and layout stay.

    Raises ConfigError where there is no such line or the value takes several, JobError where it names this warehouse already.
    """
    text = read_text(config_path)
    parse_toml(text, config_path)
    document = tomlkit.parse(text)
    pipeline = document.get("pipeline")
    if isinstance(pipeline, dict) and isinstance(pipeline.get("warehouse"), str):
        pipeline["warehouse"] = warehouse
        edited = tomlkit.dumps(document)
        before, after = text.split("\n"), edited.split("\n")
        if text == edited:
            raise _in_use(warehouse)
        if len(before) == len(after):
            (at,) = (n for n, line in enumerate(after) if line != before[n])
            return Switch(at + 1, before[at].rstrip("\r"), after[at].rstrip("\r"), edited)
    raise ConfigError(
        f'config: {str(config_path)!r} has no line `warehouse = "..."` in section [pipeline] that could be switched; write one'
    )


def _in_use(warehouse: str) -> JobError:
    return JobError(f"--warehouse: {warehouse!r} is the pipeline's warehouse; write a path that is not in use")


def switched(config_path: str | Path, switch: Switch) -> Config:
    """Return the config as it is after the switch."""
    return parse_config(parse_toml(switch.text, config_path), Path(config_path).resolve().parent)


def apply_switch(config_path: str | Path, switch: Switch) -> None:
    """Write the switched config in the place of the old one, whole or not at all; permissions and links stay."""
    file = Path(config_path).resolve()
    line = read_text(file).split("\n")[switch.line - 1 : switch.line]
    if [text.rstrip("\r") for text in line] != [switch.before]:
        raise JobError(f"config: {str(config_path)!r} has changed meanwhile; edit line {switch.line} yourself")
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(switch.text.encode())
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(file.stat().st_mode & 0o7777)
        failpoints.hit("rebuild_before_switch")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
