"""What pydantic says of a section, in lines that name the key, the value and what to write instead."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from types import NoneType, UnionType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sessionlake.config.problems import Problem
from sessionlake.config.sections import DURATION

Where = tuple[int | str, ...]
_BOUNDS = {
    "literal_error": ("is not allowed", "{expected}"),
    "greater_than_equal": ("is too small", "{ge} or more"),
    "less_than_equal": ("is too large", "{le} or less"),
    "greater_than": ("is too small", "more than {gt}"),
    "less_than": ("is too large", "less than {lt}"),
    "too_short": ("has too few entries", "{min_length} or more"),
    "too_long": ("has too many entries", "{max_length} at most"),
}
"""By pydantic's name of what a value breaks: what is wrong with it, and what to write."""


def explain_invalid(
    error: ValidationError, model: type[BaseModel], raw: object, *, at: Where = (), beside: Sequence[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of a section, or of several; `model` is the class that was to be made of `raw`.

    `at` is where in the config it stands; names of `beside` stand at its top all the same.
    """
    told: set[str] = set()
    for problem in error.errors(include_url=False):
        where = _within(problem["loc"], raw, missing=problem["type"] == "missing")
        top = () if where[:1] and where[0] in beside else at
        key = ".".join(map(str, (*top, *where)))
        # Each member of a union says that the value is none of its own.
        if key not in told:
            told.add(key)
            yield Problem(key, _told(problem, where, model))


def _within(where: Where, raw: object, *, missing: bool) -> Where:
    """Return a place as far as a user has written it, and the missing name: what pydantic adds are names of its own."""
    for depth, part in enumerate(where):
        if not isinstance(raw, Mapping | list):
            return where[:depth]
        try:
            raw = raw[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return where[: depth + 1] if missing else where[:depth]
    return where


def _told(problem: Any, where: Where, model: type[BaseModel]) -> str:
    value, details, kind = problem.get("input"), problem.get("ctx", {}), problem["type"]
    if kind == "missing":
        return "is missing; add it to the config"
    if kind == "extra_forbidden":
        return f"is unknown{_did_you_mean(where, model)}; remove it or correct its name"
    if kind == "value_error" and details.get("error") is not None:
        return str(details["error"])
    if (unshown := _unshown(kind, value, where)) is not None:
        return unshown
    if isinstance(value, date | time):
        value = str(value)
    if kind in _BOUNDS:
        what, write = _BOUNDS[kind]
        return f"{value!r} {what}; write {write.format(**details)}"
    wrong, write = _of_type(kind, value, _field(where, model)) or (
        f"is wrong: {problem['msg'][0].lower()}{problem['msg'][1:]}",
        "correct it",
    )
    return f"{value!r} {wrong}; {write}"


def _unshown(kind: str, value: object, where: Where) -> str | None:
    """Return what is told of a value that may hold secrets, or is too long to be shown; None of any other."""
    if "options" in where:
        return (
            "is no text, whole number, true or false; write one, and a name that has dots in quotes, as in "
            "\"kafka.security.protocol\" = 'SSL'"
        )
    if isinstance(value, dict | list) and kind.startswith("string"):
        return f"is a {'list' if isinstance(value, list) else 'section'}; write one text in quotes"
    if isinstance(value, dict | list) and kind.startswith(("model", "dict")):
        return "is not a section; write its name in brackets, and its keys below it"
    return None


def _of_type(kind: str, value: object, field: FieldInfo | None) -> tuple[str, str] | None:
    """Return what is wrong with a value of another type than its key's, and what to write, for example the key's default."""
    if field is not None and kind.startswith("string") and _is_duration(field):
        return "is not a duration", "write a number and a unit, as in '30 minutes'"
    default = None if field is None else field.default
    number = default if isinstance(default, int | float) else None
    types = {
        "int": ("is not a whole number", f"write {'for example 4' if number is None else number}"),
        "float": ("is not a number", f"write {'for example 0.5' if number is None else number}"),
        "bool": ("is not true or false", "write one of them, without quotes"),
        "string": ("is not a text", f"write it in quotes, as in {str(value)!r}"),
        "list": ("is not a list", f"write it in brackets, as in [{value!r}]"),
        "dict": ("is not a section", "write its name in brackets, and its keys below it"),
        "model": ("is not a section", "write its name in brackets, and its keys below it"),
    }
    return types.get(kind.partition("_")[0])


def _is_duration(field: FieldInfo) -> bool:
    either = (getattr(kind, "__metadata__", ()) for kind in get_args(field.annotation))
    return any(DURATION in parts for parts in (field.metadata, *either))


def _field(where: Where, model: Any) -> FieldInfo | None:
    """Return the field of a place; None where it is in a table of a user's own names."""
    fields: Mapping[str, FieldInfo] = getattr(_model_at(where[:-1], model), "model_fields", {})
    return fields.get(str(where[-1])) if where else None


def _model_at(where: Where, model: Any) -> Any:
    for part in where:
        fields = getattr(model, "model_fields", None)
        if fields is not None and str(part) not in fields:
            return None
        # In a table of tables a name of the user's own stands between; what is under it is the table's value.
        model = fields[str(part)].annotation if fields else next(iter(reversed(get_args(model))), None)
        if isinstance(model, UnionType):  # a section that may be missing: Section | None
            model = next(kind for kind in get_args(model) if kind is not NoneType)
    return model


def _did_you_mean(where: Where, model: Any) -> str:
    known = list(getattr(_model_at(where[:-1], model), "model_fields", {}))
    return did_you_mean(str(where[-1]), known)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return, in brackets, which of the known names was probably meant; nothing where none is near."""
    close = difflib.get_close_matches(name, known, n=1) or [word for word in known if len(name) > 2 and name in word]
    return f" (did you mean {close[0]!r}?)" if close else ""
