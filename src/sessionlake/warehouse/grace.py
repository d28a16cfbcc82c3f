"""The grace of a config that writes none: docs/rules.md, rule 269."""

from sessionlake.config.config import Config
from sessionlake.config.durations import spoken_duration
from sessionlake.warehouse.batch_commit import BatchCommit


def keeps_zero(config: Config, last: BatchCommit | None) -> bool:
    """Say whether a warehouse began with a default of zero, and the config, without a grace, would now have another; `last` is the last commit."""
    section = config.section
    made_before = last is not None and not last.settings.graced and section.HAD_NO_GRACE
    return made_before and section.grace_told() is not None and section.grace_us > 0


def of_warehouse(config: Config, last: BatchCommit | None) -> Config:
    """Return a config with its warehouse's default grace, if it writes none."""
    return config.with_grace(0) if keeps_zero(config, last) else config


def grace_told(config: Config, last: BatchCommit | None) -> str | None:
    """Return a line about the grace of a config without one, with its figure; None if it writes a grace."""
    told = config.section.grace_told()
    if keeps_zero(config, last):
        told = (
            "is not written: this warehouse keeps 0 seconds, the default that it was made with; "
            f"write grace = '{spoken_duration(config.grace_us)}', as new ones have it, or '0 seconds'"
        )
    return told and f"{config.operator}.grace: {told}"
