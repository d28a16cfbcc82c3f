"""The classes of sections and aggregates by name, made of the registries: a new operator, source or function needs nothing here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from sessionlake.aggregates.functions import FUNCTIONS, Function
from sessionlake.config.load import Config
from sessionlake.config.operator_sections import companions, section_type
from sessionlake.config.operators import OPERATORS, SECTIONS, named
from sessionlake.config.sections import OperatorSection
from sessionlake.config.source import SourceSection
from sessionlake.config.sources import SOURCES
from sessionlake.config.unions import Model, leaves
from sessionlake.define.sections import Aggregate, Operator, Section, Source

EMIT = "emit"
"""The section whose class is `sessionlake.Emit`, which operators without a config have, too."""


@dataclass(frozen=True)
class Shape:
    """The shape of the class of a section."""

    name: str
    base: type[Section]
    at: str
    """The section's name in a config."""
    models: tuple[Model, ...]
    """The section's models, one for each variant."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The class's own keys, with their values."""
    first: str | None = None
    """The key that needs no name."""
    hidden: frozenset[str] = frozenset()
    """Fields of the models that are no keys of the section, or no fixed keys."""
    listed: bool = False
    """Whether a config has a list of such sections."""
    also: tuple[str, ...] = ()
    """Further sections of the class."""

    def keys(self) -> dict[str, list[FieldInfo]]:
        """Return the keys by their names in Python, each with its field in the models that have it."""
        names = dict.fromkeys(name for model in self.models for name in model.model_fields)
        return {
            name: [model.model_fields[name] for model in self.models if name in model.model_fields]
            for name in names
            if name not in {*self.fixed, *self.hidden}
        }

    def made(self) -> type[Section]:
        """Return the class."""
        aliases = {name: fields[0].alias for name, fields in self.keys().items() if fields[0].alias is not None}
        more = {"AT": self.at, "FIXED": self.fixed, "FIRST": self.first, "ALIASES": aliases}
        return type(self.name, (self.base,), {"__doc__": self.doc(), "__module__": "sessionlake", **more})

    def doc(self) -> str:
        """Return its help text."""
        told = " and ".join(f"[{at}]" for at in (self.at, *self.also))
        variants = f"The section{'s' if self.also else ''} {told}, of which there are variants."
        first = variants if len(self.models) > 1 else (self.models[0].__doc__ or "").splitlines()[0]
        return f"{first}\n\nIts keys are those of {told}: {', '.join(self.keys())}."


@cache
def classes() -> Mapping[str, type]:
    """Return the classes by name."""
    calls = {class_name(name): _call(name, function) for name, function in FUNCTIONS.items()}
    return {**{shape.name: shape.made() for shape in shapes()}, **calls}


def shapes() -> Iterator[Shape]:
    """Yield the shapes of all sections' classes."""
    yield from _operators()
    yield from _sources()
    yield from _sides()
    yield from _others()


def class_name(name: str) -> str:
    """Return the name of the class of a section, a kind of source or a function.

    >>> class_name("count_distinct")
    'CountDistinct'
    """
    return "".join(part.capitalize() for part in name.split("_"))


def _operators() -> Iterator[Shape]:
    """Yield a shape for each operator, named as its kind."""
    for entry in OPERATORS.values():
        key, value = entry.choice
        models = _members(named(entry.model))
        beside = {*OperatorSection.BESIDE, *(name for model in models for name in model.BESIDE)}
        also = {name for model in models for name in model.ALSO_KEYS}
        fixed, hidden = {key: value} if key else {}, frozenset(beside - also)
        yield Shape(entry.kind.rpartition(":")[2], Operator, entry.section, tuple(models), fixed, hidden=hidden)


def _sources() -> Iterator[Shape]:
    """Yield a shape for each kind of source; what names the input needs no name itself."""
    for kind, entry in SOURCES.items():
        hidden = {key for other in SOURCES.values() if other is not entry for key in other.keys}
        if entry.has_own_keys_only:
            hidden = {*SourceSection.model_fields} - {*entry.keys}
        yield Shape(
            class_name(kind), Source, "source", (SourceSection,), {"kind": kind}, entry.place, frozenset(hidden)
        )


def _sides() -> Iterator[Shape]:
    """Yield a shape for each input of operators with several inputs; inputs of equal name share a class."""
    places_by_class: dict[str, dict[str, list[Any]]] = {}
    for section in SECTIONS:
        for model in _members(section_type(section)):
            for name in model.SIDES:
                places = places_by_class.setdefault(name, {})
                places.setdefault(f"{section}.{name}", []).extend(leaves(model.model_fields[name].annotation))
    for name, places in places_by_class.items():
        sides = tuple(one for some in places.values() for one in some)
        at, *also = places
        yield Shape(class_name(name), Section, at, sides, also=tuple(also))


def _others() -> Iterator[Shape]:
    """Yield a shape for each section that goes with any operator, or with some."""
    lists = {n: get_args(f.annotation) for n, f in Config.model_fields.items() if get_origin(f.annotation) is list}
    found = {name: leaves(inner.annotation) for name, inner in Config.model_fields.items()}
    found |= {name: [leaf for part in parts for leaf in leaves(part)] for name, parts in lists.items()}
    for name, having in companions().items():
        members = [model for section in having for model in _members(section_type(section))]
        found[name] = [leaf for model in members for leaf in leaves(model.model_fields[name].annotation)]
    for name, models in found.items():
        if models and name not in ("pipeline", "source", "section", EMIT):
            yield Shape(class_name(name), Section, name, tuple(dict.fromkeys(models)), listed=name in lists)


def _members(kind: Any) -> list[type[OperatorSection]]:
    return cast("list[type[OperatorSection]]", leaves(kind))


def _call(name: str, function: Function) -> type[Aggregate]:
    text, made = function.example(name), class_name(name)
    call = function.example(made, ["'column'", "'other'"][: function.columns])
    doc = f"The aggregate {text!r}; `where` is the condition of a filter.\n\n>>> str({call})\n{text!r}"
    own = {"FUNCTION": name, "COLUMNS": function.columns, "__doc__": doc, "__module__": "sessionlake"}
    return type(made, (Aggregate,), own)
