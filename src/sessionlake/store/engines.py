"""The engines of shards' stores: sorted files and RocksDB. Each keeps segments (`api.Segments`) in a shard's directory.

rocksdict is imported only if a pipeline or a directory asks for RocksDB. `may_hold` reads a store even while another process has
it open, and changes nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sessionlake.config.store_engines import FILES, ROCKSDB, StoreEngine
from sessionlake.errors import StoreError
from sessionlake.store.api import OpenSegments
from sessionlake.store.directory import CURRENT, ROCKSDB_FORMAT, format_in
from sessionlake.store.files import FileSegments, State
from sessionlake.store.runs import DamagedError, Run
from sessionlake.store.secondary import SecondarySegments, StoreView

_ATTEMPTS = 50
_PAUSE_S = 0.1


def may_hold(path: Path, keys: list[bytes]) -> bool:
    """Say whether a store has a key in any of its segments, or can't be read, so that nobody knows.

    Another process may write to the store meanwhile.
    """
    for _ in range(_ATTEMPTS):
        if not (path / CURRENT).exists():
            return False
        try:
            segments = State.read(path).segments.values()
            return any(levels.get(key) is not None for levels in segments for key in keys)
        except FileNotFoundError:  # it was replaced meanwhile
            time.sleep(_PAUSE_S)
        except (DamagedError, OSError):
            return True
    return True


def run_holds(file: Path, keys: list[bytes]) -> bool:
    """Say whether a run has a key, even if a newer run hides it, or a merge has replaced the run. Raises DamagedError, and FileNotFoundError."""
    run = Run(file)
    return any(run.row_of(key) >= 0 for key in keys)


def run_keys(file: Path) -> pa.Array:
    """Return all keys of a run, as `run_holds` looks at them; raises what that does."""
    run = Run(file)
    return run.between(0, run.rows).keys


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
