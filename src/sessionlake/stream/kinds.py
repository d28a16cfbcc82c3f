"""The kind of the operator that a config asks for; `config.operators` has the list."""

from typing import Any

from sessionlake.config.load import Config
from sessionlake.config.operators import OperatorEntry, named
from sessionlake.stream.described import Described
from sessionlake.stream.described_kind import described_kind
from sessionlake.stream.kind import Kind


def kind_of(config: Config) -> type[Kind]:
    """Return the kind, its module imported now."""
    return kind_named(config.entry)


def kind_named(entry: OperatorEntry) -> type[Kind]:
    """Return an operator's kind: its own, or the kind of any operator that is data."""
    found: Any = named(entry.kind)
    return described_kind(found) if issubclass(found, Described) else found
