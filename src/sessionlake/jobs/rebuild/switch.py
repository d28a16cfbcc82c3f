"""The edit of a config by which it uses another warehouse."""

import os
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from sessionlake.config.file import ConfigFile, Text, parse_toml, read_text
from sessionlake.config.load import Config, config_of
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, JobError


@dataclass(frozen=True)
class Switch:
    """The edit that makes a config use another warehouse."""

    line: int
    """1-based number of the line that changes."""
    before: str
    after: str
    text: str
    """The whole file with the line changed."""


def plan_switch(config_path: str | Path, warehouse: str) -> Switch:
    """Return the edit of `warehouse` in section [pipeline]; comments and layout stay.

    Raises ConfigError if there is no such line or the value takes several, JobError if it names this warehouse already.
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
            raise in_use(warehouse)
        if len(before) == len(after):
            (at,) = (n for n, line in enumerate(after) if line != before[n])
            return Switch(at + 1, before[at].rstrip("\r"), after[at].rstrip("\r"), edited)
    raise ConfigError(
        f'config: {str(config_path)!r} has no line `warehouse = "..."` in section [pipeline] that could be switched; write one'
    )


def in_use(warehouse: str) -> JobError:
    """Return the error for a path that the pipeline uses already."""
    return JobError(f"--warehouse: {warehouse!r} is the pipeline's warehouse; write a path that is not in use")


def switched(config_path: str | Path, switch: Switch) -> Config:
    """Return the config as it is after the switch."""
    return config_of(ConfigFile.of(Text(str(config_path), switch.text, parse_toml(switch.text, config_path))))


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
