"""The engines of shards' stores: sorted files and RocksDB. Each keeps segments (`api.Segments`) in a shard's directory.

rocksdict is imported only if a pipeline or a directory asks for RocksDB.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionlake.config.store_engines import FILES, ROCKSDB, StoreEngine
from sessionlake.errors import StoreError
from sessionlake.store.api import OpenSegments
from sessionlake.store.directory import ROCKSDB_FORMAT, format_in
from sessionlake.store.files import FileSegments
from sessionlake.store.secondary import SecondarySegments, StoreView


def opened_by(engine: StoreEngine) -> OpenSegments:
    """Return what opens a shard's directory with an engine; a store of another engine there is a LayoutError."""
    if engine == FILES:
        return FileSegments
    with _imported():
        from sessionlake.store.rocks import RocksSegments  # noqa: PLC0415 (see above)

        return RocksSegments


def engine_at(path: Path) -> StoreEngine:
    """Return the engine that made the store of a directory; FILES if there is no store."""
    return ROCKSDB if format_in(path) == ROCKSDB_FORMAT else FILES


def view_of(path: Path) -> StoreView:
    """Return a store as it is now, whichever engine made it; FileNotFoundError if there is none, StoreError if it can't be read."""
    if engine_at(path) == FILES:
        return SecondarySegments(path)
    with _imported():
        from sessionlake.store.rocks_view import RocksView  # noqa: PLC0415 (see above)

        return RocksView(path)


@contextmanager
def _imported() -> Iterator[None]:
    try:
        yield
    except ImportError as error:  # the driver has it, or the config would have been refused
        raise StoreError(
            f"pipeline.store_engine: {ROCKSDB!r} needs rocksdict, which this machine's Python lacks; install it on every executor"
        ) from error
