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
    """Return the class which opens a store's directory. It raises LayoutError if another engine made the store."""
    if engine == FILES:
        return FileSegments
    with _imported():
        from sessionlake.store.rocks import RocksSegments  # noqa: PLC0415 (see above)
    return RocksSegments


def engine_at(path: Path) -> StoreEngine:
    """Return the engine of the store in a directory; FILES if there is no store, or its marker can't be read."""
    return ROCKSDB if format_in(path) == ROCKSDB_FORMAT else FILES


def view_of(path: Path) -> StoreView:
    """Return a snapshot of a store, whichever engine made it; FileNotFoundError if there is none, StoreError if it can't be read."""
    try:
        engine = engine_at(path)
    except OSError as error:
        raise StoreError(f"store: {str(path)!r} can't be read ({error}); mend that and try again") from error
    if engine == FILES:
        return SecondarySegments(path)
    with _imported():
        from sessionlake.store.rocks_view import RocksView  # noqa: PLC0415 (see above)
    return RocksView(path)


@contextmanager
def _imported() -> Iterator[None]:
    try:
        yield
    except ImportError as error:  # a config is refused if the driver lacks it, so another machine does
        raise StoreError(
            f"pipeline.store_engine: {ROCKSDB!r} needs rocksdict, which this machine's Python can't import ({error}); install it there"
        ) from error
