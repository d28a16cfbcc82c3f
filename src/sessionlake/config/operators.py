"""The operators by the section that asks for one: the section's class and the operator's kind, each as module:name.

They are named, not imported: operators lie above the config. A new operator is a folder under `operators` and an entry here.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sessionlake.config.sections import OperatorSection


@dataclass(frozen=True)
class OperatorEntry:
    """Where an operator is."""

    section: str
    kind: str


OPERATORS = {
    "session": OperatorEntry(
        "sessionlake.config.sessions:SessionSection", "sessionlake.operators.sessions.kind:Sessions"
    ),
    "window": OperatorEntry(
        "sessionlake.operators.windows.section:WindowSection", "sessionlake.operators.windows.kind:Windows"
    ),
    "table": OperatorEntry(
        "sessionlake.operators.keyed.section:TableSection", "sessionlake.operators.keyed.kind:KeyedTable"
    ),
    "join": OperatorEntry("sessionlake.operators.joins.section:JoinSection", "sessionlake.operators.joins.kind:Joins"),
}


def section_class(name: str) -> type[OperatorSection]:
    """Return the class of an operator's section."""
    found: type[OperatorSection] = named(OPERATORS[name].section)
    return found


def named(place: str) -> Any:
    """Return what module:name names, the module imported now."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
