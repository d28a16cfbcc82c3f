"""The section [ttl] of tables: the union of the patterns' sections. A new pattern is a module in `expiry/` and its name here."""

from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from sessionlake.operators.keyed.expiry.section import TtlSection

PATTERNS = ("scan", "index", "time_boxed", "time_ordered_keys", "lru", "segments")
"""Modules of `expiry/`; the function `section` of each returns its class of the section."""

if TYPE_CHECKING:
    AnyTtl = TtlSection
else:
    _MODULES = (import_module(f"sessionlake.operators.keyed.expiry.{name}") for name in PATTERNS)
    AnyTtl = Annotated[reduce(or_, (module.section() for module in _MODULES)), Field(discriminator="pattern")]


def ttl_section(value: Mapping[str, Any]) -> TtlSection:
    """Return the section [ttl] with these keys and values."""
    section: TtlSection = TypeAdapter(AnyTtl).validate_python(value)
    return section
