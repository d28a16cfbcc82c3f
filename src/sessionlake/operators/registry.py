"""The kind of operator that a config asks for; `config.operators` has the list."""

from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.stream.kind import Kind


def kind_of(config: Config) -> type[Kind]:
    """Return the kind, its module imported now."""
    kind: type[Kind] = named(config.entry.kind)
    return kind
