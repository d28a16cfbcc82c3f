"""What benchmarks use of the package, also of older commits of it, whose modules lay elsewhere and whose batches were dicts."""

from typing import Any

try:
    from sessionlake.config.load import Config, parse_config
    from sessionlake.warehouse.tables import Tables
    from sessionlake.warehouse.views import merged_rows

    try:
        from sessionlake.stream.run import run
    except ImportError:  # a commit in which the operators ran a kind
        from sessionlake.operators.run import run  # type: ignore[import-not-found, no-redef]
except ModuleNotFoundError:  # a commit before the tree of layers
    from sessionlake.config import Config, parse_config  # type: ignore[attr-defined, no-redef]
    from sessionlake.jobs.sessionizer.run import run  # type: ignore[import-not-found, no-redef]
    from sessionlake.tables import Tables  # type: ignore[import-not-found, no-redef]
    from sessionlake.views import merged_sessions as merged_rows  # type: ignore[import-not-found, no-redef]

__all__ = ["Config", "Tables", "committed_s", "merged_rows", "parse_config", "run"]


def committed_s(batch: Any) -> float:
    """Return when a batch was committed, in seconds since the epoch."""
    committed_us = batch["committed_us"] if isinstance(batch, dict) else batch.committed_us
    return float(committed_us) / 1e6
