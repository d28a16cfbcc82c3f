"""`sessionlake plan`: the effect of a config on existing tables, before anything runs.

`plan --write` adds the section that keeps earlier values for earlier event times to the config's file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessionlake.aggregates.layouts import Layout
from sessionlake.config.file import ConfigFile, Text, parse_toml, rewrite
from sessionlake.config.load import Config, config_of
from sessionlake.errors import ConfigError, SessionlakeError
from sessionlake.preflight.additions import Additions, Made
from sessionlake.preflight.sources import UnseenError, sources_without_spark
from sessionlake.sources.equal_types import NeverEqualError
from sessionlake.stream.accepted_commands import kept_before
from sessionlake.stream.changes import Change, Class, changes
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.pipeline import operator_of
from sessionlake.stream.wrapped import inner, store_layout
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.extents import Extents
from sessionlake.warehouse.grace import grace_told, keeps_zero, of_warehouse
from sessionlake.warehouse.lake import Lake

_RESTORING = (Class.ADDED, Class.DROPPED, Class.RESTORE)
"""The changes after which the stores are restored."""


@dataclass(frozen=True)
class Plan:
    """The differences of a config from the last commit."""

    pipeline: str
    batch_id: int | None
    """The last batch; None if there is none yet."""
    watermark_us: int | None
    changes: tuple[Change, ...]
    restored_bytes: int | None = None
    """About how many bytes of the tables the stores are restored from; None if they need not be."""
    kept: str | None = None
    """A line about a default that only older warehouses have; None if the config's own hold."""

    @property
    def refused(self) -> tuple[str, ...]:
        """The settings for which `run` refuses the config."""
        return tuple(change.name for change in self.changes if change.refusal is not None)

    def fields(self) -> Mapping[str, Any]:
        """Return it as JSON values; the watermark in microseconds."""
        return {
            "pipeline": self.pipeline,
            "batch_id": self.batch_id,
            "watermark_us": self.watermark_us,
            "runs": not self.refused,
            "restored_bytes": self.restored_bytes,
            "changes": [change.fields() for change in self.changes],
            "kept": self.kept,
        }


def read_plan(config: Config, path: str | None = None) -> Plan:
    """Return the differences of a config from the last commit of its warehouse; `path` is its file. Reads logs only, and starts no JVM.

    Raises LakeError if the tables can't be read without Spark.
    """
    lake, kind = Lake.of(config), kind_of(config)
    last = find_last_batch(lake)
    if last is None:
        return Plan(config.pipeline.name, None, None, ())
    kept = grace_told(config, last) if keeps_zero(config, last) else None
    config = of_warehouse(config, last)
    made, unequal = _made(config, kind, last)
    changed = changes(config, last, kind.bound_settings(), None if made is None else _store_layout(made, last))
    extents = Extents(lake)
    changed += unequal
    if any(change.adds for change in changed):
        changed = Additions(config, last, lake, extents, made, path).told(changed)
    restores = any(change.of in _RESTORING for change in changed)
    restored = _restored_bytes(config, kind, extents, last) if restores else None
    return Plan(config.pipeline.name, last.batch_id, last.watermark_us, tuple(changed), restored, kept)


def _made(config: Config, kind: type[Kind], last: BatchCommit) -> tuple[Made | None, list[Change]]:
    """Return a config's operator, None if it can't be made, for which `check` gives the reason; and the columns that it must not compare."""
    pinned = Pinned.of_settings(last.settings, last.batch_id)
    try:
        sources = sources_without_spark(config)
        return Made(config, sources, kind.make(config, sources, pinned), pinned), []
    except NeverEqualError as error:
        wrong = error.problems
        return None, [Change(Class.LIVE, str(p.key), None, None, p.message, str(p)) for p in wrong]
    except (UnseenError, SessionlakeError):
        return None, []


def _store_layout(made: Made, last: BatchCommit) -> str:
    """Return the layout of the stores under the config."""
    operator = operator_of(made.kind, [Layout.read(fields) for fields in last.settings.layouts])
    return store_layout(operator, made.kind.store_layout(inner(operator)))


def _restored_bytes(config: Config, kind: type[Kind], extents: Extents, last: BatchCommit) -> int:
    unique = any(side.event.unique_us is not None for side in config.inputs.values())
    of, from_us = kind.changelogs_in(config)[0], kind.expired_us(config, dict(last.state))
    return extents.restored(of, from_us, more=(schemas.EVENT_IDS,) if unique else ())


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
