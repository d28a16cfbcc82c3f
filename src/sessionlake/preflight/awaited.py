"""Whether the pipelines that a pipeline reads have a batch yet."""

from sessionlake.config.load import Config
from sessionlake.errors import AwaitedError
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake


def require_upstream(config: Config) -> None:
    """Raise AwaitedError if a pipeline whose results are read has no batches yet."""
    for side in config.inputs.values():
        upstream = config.upstream.get(side.source.AT)
        if upstream is not None and find_last_batch(Lake(upstream.warehouse, upstream.changelog)) is None:
            raise AwaitedError.of(side.source.place_at, side.source.place)
