"""The engines of stores that `pipeline.store_engine` may name, and whether the one that it names is there."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, get_args

from sessionlake.errors import ConfigError

StoreEngine = Literal["files", "rocksdb"]
FILES: Final = "files"
ROCKSDB: Final = "rocksdb"
ENGINES: tuple[StoreEngine, ...] = get_args(StoreEngine)
_PACKAGE, _TESTED = "rocksdict", "0.3.29"
"""The package of RocksDB for Python, and the version that stores were tested with, as in pyproject.toml."""


def check_store_engine(engine: StoreEngine) -> None:
    """Raise ConfigError if an engine is not installed, or in a version that stores were not tested with."""
    if engine == FILES:
        return
    try:
        import_module(_PACKAGE)
        found = version(_PACKAGE)
    except (ImportError, PackageNotFoundError):
        found = None
    if found != _TESTED:
        there = "which is not installed" if found is None else f"and {found} is installed"
        raise ConfigError(
            f"pipeline.store_engine: {engine!r} needs {_PACKAGE} {_TESTED}, {there}; "
            f"run `pip install {_PACKAGE}=={_TESTED}`, or write {FILES!r}"
        )
