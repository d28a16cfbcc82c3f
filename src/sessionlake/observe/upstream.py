"""The pipelines and tables that a pipeline reads, as of its last commit. Read without Spark."""

import os
from dataclasses import dataclass

from pyarrow import fs

from sessionlake.config.load import Config
from sessionlake.config.lookups import FOLDER
from sessionlake.sources.lookups.lookup import FILE, FOUND, MISSING, REFUSED, made_us, version_of
from sessionlake.warehouse.arrow_files import file_system
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.seen import Visible


@dataclass(frozen=True)
class UpstreamState:
    """A pipeline whose results are read."""

    name: str
    batch_id: int
    """The last of its batches that this pipeline's last batch has read."""
    behind: int | None
    """The number of its unread batches; None if its tables can't be found."""


def upstream_of(config: Config, last: BatchCommit) -> list[UpstreamState]:
    """Return the pipelines that the last batch has read, by the inputs."""
    states = []
    for side in config.inputs.values():
        upstream, pin = config.upstream.get(side.source.AT), last.pins.get(side.source.place_at)
        if upstream is not None and pin is not None:
            newest = find_last_batch(Lake(upstream.warehouse, upstream.changelog))
            batch_id = Visible.read(pin).batch_id
            states.append(
                UpstreamState(upstream.name, batch_id, None if newest is None else newest.batch_id - batch_id)
            )
    return states


@dataclass(frozen=True)
class LookupState:
    """A table that events are looked up in."""

    name: str
    version: str
    """The version that the last batch has read."""
    made_us: int
    """When this version's file was made, microseconds."""
    found: int
    """Events of the last batch for which it had a row."""
    missing: int
    """Events of the last batch for which it had none."""
    refused: str | None
    """A newer version, and why it is not used; None if there is none."""


def lookups_of(config: Config, last: BatchCommit) -> list[LookupState]:
    """Return the lookups of the last batch, in the order in which they are made."""
    names = (section.name for side in config.inputs.values() for section in side.lookup)
    return [_state(config, last, name) for name in names if name in last.pins]


def _state(config: Config, last: BatchCommit, name: str) -> LookupState:
    file = last.pins[name]
    found, missing = (last.counts.get(f"{count}:{name}", 0) for count in (FOUND, MISSING))
    refused = _refused(f"{config.pipeline.warehouse}/{FOLDER}/{name}", file)
    return LookupState(name, version_of(file), made_us(file), found, missing, refused)


def _refused(folder: str, file: str) -> str | None:
    """Return the newest version of a table, and why it is not used; None if it is."""
    try:
        system, path = file_system(folder)
        names = (info.base_name for info in system.get_file_info(fs.FileSelector(path)))
        newest = max(name for name in names if name.endswith((FILE, REFUSED)))
        if not newest.endswith(REFUSED) or newest < file:
            return None
        with system.open_input_file(os.path.join(path, newest)) as source:  # noqa: PTH118 (of any file system)
            return f"version {version_of(newest)} {source.read().decode()}"
    except (OSError, ValueError):  # gone, or of an object store without credentials here
        return None
