"""`sessionlake plan --write`: the section of a config that keeps earlier values for earlier event times, written into its file."""

from dataclasses import dataclass
from pathlib import Path

from sessionlake.config.file import ConfigFile, Text, parse_toml, rewrite
from sessionlake.config.load import Config, config_of
from sessionlake.errors import ConfigError
from sessionlake.stream.accepted_commands import kept_before
from sessionlake.stream.changes import Class, changes
from sessionlake.stream.kinds import kind_of
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake


@dataclass(frozen=True)
class Kept:
    """A section that was written into a config."""

    text: str
    config: Config
    """The config with it."""


def write_kept(path: str, config: Config) -> Kept | None:
    """Append the section of `before` that a config needs to be taken, and return it; None if it needs none, or none can help.

    Raises ConfigError if the file can't take a section.
    """
    last = find_last_batch(Lake.of(config))
    if last is None:
        return None
    refused = {
        change.name for change in changes(config, last, kind_of(config).bound_settings()) if change.of == Class.REBUILD
    }
    if not refused & {*config.section.CUTS}:
        return None
    keys = kept_before(config, last.settings.rebuild, last.watermark_us)
    if keys is None:
        return None
    before = Path(path).read_bytes()
    end = "\r\n" if b"\r\n" in before else "\n"
    text = end.join((f"[[{config.operator}.before]]", *(f"{name} = {value}" for name, value in keys.items()), ""))
    gap = end if before.endswith(b"\n") else 2 * end
    edited = before + f"{gap}{text}".encode()
    kept = _read(path, edited.decode("utf-8-sig"), text)
    if Path(path).read_bytes() != before:
        raise ConfigError(f"config: {path!r} has changed meanwhile; start the command again")
    rewrite(path, edited)
    return Kept(text, kept)


def _read(path: str, edited: str, text: str) -> Config:
    try:
        return config_of(ConfigFile.of(Text(path, edited, parse_toml(edited, path))))
    except ConfigError as error:
        lines = "; ".join(text.splitlines())
        raise ConfigError(
            f"--write: {path!r} can't take a section at its end ({error}); write it yourself: {lines}"
        ) from error
