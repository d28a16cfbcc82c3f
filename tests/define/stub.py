"""The names of the classes of sections and their arguments for type checkers, as the registries have them.

Run as a module it writes `define/names.pyi`, and the names into `define/names.py`.
"""

import re
import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sessionlake.aggregates.functions import FUNCTIONS, Function, Number
from sessionlake.config.fields import DURATION
from sessionlake.config.sections import PipelineSection
from sessionlake.config.source import SourceSection
from sessionlake.define.classes import EMIT, Shape, class_name, shapes
from sessionlake.define.sections import Operator, Source

FILE = Path(__file__).parents[2] / "src" / "sessionlake" / "define" / "names.pyi"
NAMES = FILE.with_suffix(".py")
ANY_SECTION = "Mapping[str, Any]"
RUFF = Path(sys.executable).parent / "ruff"
HEAD = """\
# Made of the registries by `python -m tests.define.stub`.
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Required, TypeAlias, TypedDict

from sessionlake.define.sections import Aggregate, Operator, Section, Source
from sessionlake.standalone.emit import Emit

Duration: TypeAlias = str | timedelta

"""


def stub() -> str:
    """Return the text of the file, in the form that the linter gives it."""
    found = [*shapes()]
    named = {model: shape.name for shape in found for model in shape.models if not issubclass(shape.base, Source)}
    parts = [
        HEAD,
        f"__all__ = {_names()!r}\n\n",
        *(_class(shape, named) for shape in found),
        *(_call(name, function) for name, function in FUNCTIONS.items()),
        _given(found, named),
    ]
    return _formatted("".join(parts), FILE)


def names() -> str:
    """Return the text of the module that makes the classes, with their names as of now."""
    text = NAMES.read_text()
    made = re.sub(r"^__all__ = \[.*?\]", f"__all__ = {_names()!r}", text, flags=re.MULTILINE | re.DOTALL)
    return _formatted(made, NAMES)


def _names() -> list[str]:
    return sorted([*(shape.name for shape in shapes()), *map(class_name, FUNCTIONS)])


def _formatted(text: str, file: Path) -> str:
    command = [RUFF, "format", "--stdin-filename", file, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _class(shape: Shape, named: dict[type[BaseModel], str]) -> str:
    keys = shape.keys()
    arguments = [_argument(name, keys.pop(name), shape, named) for name in [shape.first] if name is not None]
    arguments += ["*", *(_argument(name, fields, shape, named) for name, fields in keys.items())]
    doc = shape.doc().replace("\n\n", "\n\n    ")
    head = f'class {shape.name}({shape.base.__name__}):\n    """{doc}\n    """\n\n'
    return f"{head}    def __init__(self, {', '.join(arguments)}) -> None: ...\n\n"


def _argument(name: str, fields: list[FieldInfo], shape: Shape, named: dict[type[BaseModel], str]) -> str:
    required = len(fields) == len(shape.models) and all(field.is_required() for field in fields)
    return f"{name}: {_of_fields(fields, named)}{'' if required else ' = ...'}"


def _of_fields(fields: list[FieldInfo], named: dict[type[BaseModel], str]) -> str:
    kinds = [kind for field in fields for kind in _kinds(field.annotation, field.metadata, named)]
    if any(field.alias == "class" for field in fields):
        kinds.append("type")
    if {"str", "int"} <= {*kinds}:  # a length, by time or by count
        kinds[kinds.index("str")] = "Duration"
    words = dict.fromkeys(word for kind in kinds if kind.startswith("Literal") for word in kind[8:-1].split(", "))
    others = dict.fromkeys(kind for kind in kinds if not kind.startswith("Literal"))
    literal = [f"Literal[{', '.join(words)}]"] if words else []
    return " | ".join([*literal, *others])


def _kinds(annotation: Any, metadata: Any, named: dict[type[BaseModel], str]) -> list[str]:
    """Return the types that an annotation allows. A section that has no class is a mapping, and none beside other types."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kinds(parts[0], parts[1:], named)
    if origin in (Union, UnionType):
        found = [kind for part in parts for kind in _kinds(part, (), named)]
        others = [kind for kind in found if kind != ANY_SECTION]
        return sorted(found if others == ["None"] else others or found, key=lambda kind: kind == "None")
    if origin in (list, dict):
        inner = " | ".join(_kinds(parts[-1], (), named))
        return [f"list[{inner}]" if origin is list else f"Mapping[str, {inner}]"]
    if origin is Literal:
        return [f"Literal[{', '.join(map(repr, parts))}]"]
    return ["Duration" if DURATION in metadata else _name(annotation, named)]


def _name(kind: type, named: dict[type[BaseModel], str]) -> str:
    if issubclass(kind, SourceSection):
        return "Source"
    if issubclass(kind, BaseModel):
        return named.get(kind, ANY_SECTION)
    return "None" if kind is NoneType else kind.__name__


def _call(name: str, function: Function) -> str:
    least = function.columns if function.least is None else function.least
    arguments = [
        f"{column}: str{'' if place < least else ' = ...'}"
        for place, column in enumerate(("column", "other")[: function.columns])
    ]
    for literal in function.literals:
        if isinstance(literal, Number):
            optional = literal.optional or literal.default is not None
            arguments.append(f"number: {'int' if literal.whole else 'float'}{' = ...' if optional else ''}")
        else:
            arguments.append("text: str")
    where = ["*", "where: str | None = ..."] if function.filtered else []
    given = ", ".join(["self", *arguments, *(["/"] if arguments else []), *where])
    return f"class {class_name(name)}(Aggregate):\n    def __init__({given}) -> None: ...\n\n"


def _given(found: list[Shape], named: dict[type[BaseModel], str]) -> str:
    """Return the type of the arguments of `Pipeline`."""
    keys = {name: field for name, field in PipelineSection.model_fields.items() if name != "name"}
    lines = [
        f"    {name}: {f'Required[{kind}]' if field.is_required() else kind}\n"
        for name, field in keys.items()
        for kind in [_of_fields([field], named)]
    ]
    lines.append("    source: Source | Mapping[str, Any]\n    aggregates: Mapping[str, Aggregate | str | type]\n")
    plain = [shape for shape in found if not issubclass(shape.base, Operator | Source) and "." not in shape.at]
    sections = {EMIT: EMIT.capitalize(), **{shape.at: shape.name for shape in plain}}
    lists = {shape.at for shape in plain if shape.listed}
    one = {at: f"{name} | {ANY_SECTION}" for at, name in sections.items()}
    lines += [f"    {at}: {f'Sequence[{kind}]' if at in lists else kind} | None\n" for at, kind in one.items()]
    return f"class Given(TypedDict, total=False):\n{''.join(lines)}"


if __name__ == "__main__":
    FILE.write_text(stub())
    NAMES.write_text(names())
