"""The types of the operators' sections: one operator's type, or the union of types with the same name."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, cast

from pydantic import Discriminator, Tag

from sessionlake.config.operators import OPERATORS, SECTIONS, named
from sessionlake.config.sections import OperatorSection
from sessionlake.config.unions import leaves


def section_type(name: str) -> Any:
    """Return the type of a section of this name: its operator's, or the union of types if several operators share the name."""
    entries = [entry for entry in OPERATORS.values() if entry.section == name]
    if len(entries) == 1:
        return named(entries[0].model)
    key, default = entries[0].choice

    def tag(value: Any) -> Any:
        return value.get(key, default) if isinstance(value, Mapping) else default

    tag.__name__ = key  # pydantic's errors name it
    members = [Annotated[named(entry.model), Tag(entry.choice[1])] for entry in entries]
    return Annotated[reduce(or_, members), Discriminator(tag)]


def companions() -> dict[str, list[str]]:
    """Return the sections that accompany operators' sections, each with the names of these. Imports the sections of all operators."""
    found: dict[str, list[str]] = {}
    for name in SECTIONS:
        members = cast("list[type[OperatorSection]]", leaves(section_type(name)))
        for other in dict.fromkeys(other for member in members for other in member.BESIDE):
            found.setdefault(other, []).append(name)
    return found
