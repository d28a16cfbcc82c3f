"""The keys of a source of files."""

from sessionlake.config.source import SourceSection, require_path
from sessionlake.errors import ConfigError


def check(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing or that don't go together."""
    if source.max_files_per_batch and source.max_bytes_per_batch:
        raise ConfigError(
            f"{source.AT}.max_bytes_per_batch: goes without max_files_per_batch, since Spark bounds a batch of files by one of them; "
            "remove one"
        )
    require_path(source)
    if source.file_format is None:
        what = "is missing" if source.format is None else f"{source.format!r} goes with kind 'kafka' only"
        raise ConfigError(f"{source.AT}.format: {what}; write 'json', 'csv' or 'parquet'")
