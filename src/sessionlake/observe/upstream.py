"""The pipelines whose results a pipeline reads, as of its last commit. Read without Spark."""

from dataclasses import dataclass

from sessionlake.config.load import Config
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.seen import Visible


@dataclass(frozen=True)
class UpstreamState:
    """A pipeline whose results are read."""

    name: str
    batch_id: int
    """Its batch that the last batch has read up to."""
    behind: int | None
    """How many of its batches are not read yet; None if its tables can't be found."""


def upstream_of(config: Config, last: BatchCommit) -> list[UpstreamState]:
    """Return the pipelines that the last batch has read, by the inputs."""
    found = []
    for side in config.inputs.values():
        upstream, pin = config.upstream.get(side.source.AT), last.pins.get(side.source.place_at)
        if upstream is not None and pin is not None:
            newest = find_last_batch(Lake(upstream.warehouse, upstream.changelog))
            batch_id = Visible.read(pin).batch_id
            found.append(UpstreamState(upstream.name, batch_id, None if newest is None else newest.batch_id - batch_id))
    return found
