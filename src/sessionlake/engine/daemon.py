"""The Python daemon that Spark forks its workers from: a lean module path, the workers' imports done once.

Named by `spark.python.daemon.module`; run as `python -m sessionlake.engine.daemon`, never imported.
"""

import gc
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

WARM = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.pandas.types",
    "sessionlake.engine.shard",
    "sessionlake.engine.split",
)
"""Modules that every pipeline's tasks import. Each worker is a fork of this process, so it need not import them again."""
OPERATORS = "sessionlake.config.operators"
"""The module that lists the operators."""


def drop_archives() -> None:
    """Leave no .jar or .zip on the module path.

    Workers invalidate the import caches at each task, after which Python reads the directory of every archive again.
    """
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".jar", ".zip"))]
    sys.path_importer_cache.clear()
    # Modules loaded from Spark's own pyspark.zip, and modules that refer to them, must come from the installed packages.
    for name in [name for name in sys.modules if name.partition(".")[0] in {"delta", "py4j", "pyspark", "sessionlake"}]:
        del sys.modules[name]


def warm_up() -> None:
    """Import what tasks import, the operators' halves that work in the workers among it."""
    for name in (*WARM, *_operators()):
        if importlib.util.find_spec(name):
            importlib.import_module(name)


def main() -> None:
    """Warm the process up, then serve forks until Spark closes standard input."""
    drop_archives()
    warm_up()
    daemon: Any = importlib.import_module("pyspark.daemon")
    quiet(daemon)
    # A worker collects garbage after each task. Objects frozen before the fork are then neither walked nor copied.
    gc.collect()
    gc.freeze()
    daemon.manager()


def quiet(daemon: Any) -> None:
    """Let the workers of PySpark's daemon end without a traceback if Spark wants no more of them."""
    daemon.worker = _unsurprised(daemon.worker)
    daemon.traceback = SimpleNamespace(print_exc=_tell)


def _operators() -> list[str]:
    """Return the modules of the operators' workers' halves: `operator`, next to an entry's kind."""
    entries = importlib.import_module(OPERATORS).OPERATORS.values()
    return [f"{entry.kind.partition(':')[0].rpartition('.')[0]}.operator" for entry in entries]


def _unsurprised(worker: Callable[..., int]) -> Callable[..., int]:
    """Let a worker end without a traceback if Spark wants no more rows of it, as under a limit."""

    def served(*args: object) -> int:
        try:
            return worker(*args)
        except BrokenPipeError:
            return 1

    return served


def _tell() -> None:
    """Print the error of an ended worker, except if Java went away before the worker began: Java reports this itself."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()


if __name__ == "__main__":
    main()
