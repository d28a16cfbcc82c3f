"""The kind of operator that a config asks for, and the changelogs that its tables have; `config.operators` has the list."""

from sessionlake.config.load import Config
from sessionlake.config.operators import OPERATORS, named
from sessionlake.stream.kind import Kind
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.delta_log import DeltaLog


def kind_of(config: Config) -> type[Kind]:
    """Return the kind, its module imported now."""
    kind: type[Kind] = named(config.section.KIND or OPERATORS[config.operator].kind)
    return kind


def changelogs_of(log: DeltaLog, config: Config) -> list[Changelog]:
    """Return the pipeline's changelogs that are there, the one whose commits are the batches' first."""
    return [of for of in reversed(kind_of(config).changelogs_in(config)) if log.exists(of.changes)]
