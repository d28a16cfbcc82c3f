"""pydantic's errors about a section, in lines that name the key, the value and a valid value."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sessionlake.config.fields import DURATION
from sessionlake.config.problems import Problem
from sessionlake.config.unions import chosen, leaves, not_chosen
from sessionlake.errors import did_you_mean

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
"""By pydantic's error type: the problem of the value, and a remedy."""


def explain_invalid(
    error: ValidationError, model: Any, raw: object, *, at: Where = (), beside: Sequence[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of a section, or of several; `model` is the class, or the union of classes, to be made of `raw`.

    `at` is the section's place in the config. Names in `beside` stand at the top of the config nevertheless.
    """
    known: set[str] = set()
    for problem in error.errors(include_url=False):
        where = _within(problem["loc"], raw, missing=problem["type"] == "missing")
        if problem["type"].startswith("union_tag"):
            where = (*where, problem["ctx"]["discriminator"].strip("'()"))
        top = () if where[:1] and where[0] in beside else at
        key = ".".join(map(str, (*top, *where)))
        # pydantic reports such a value once for each member of the union.
        if key not in known:
            known.add(key)
            yield Problem(key, _problem_text(problem, where, model, raw))


def _within(where: Where, raw: object, *, missing: bool) -> Where:
    """Return a place as far as a user has written it, and the missing name. pydantic adds parts that no user wrote, such as a member's name."""
    found: list[int | str] = []
    for depth, part in enumerate(where):
        last = depth == len(where) - 1
        if not isinstance(raw, Mapping | list):
            break
        try:
            raw = raw[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            if missing and last:
                found.append(part)
            continue  # the name of a union's member
        found.append(part)
    return tuple(found)


def _problem_text(problem: Any, where: Where, model: Any, raw: object) -> str:
    value, details, kind = problem.get("input"), problem.get("ctx", {}), problem["type"]
    if (of_key := _of_key(kind, details, where, model, raw)) is not None:
        return of_key
    if kind == "value_error" and details.get("error") is not None:
        return str(details["error"])
    if (unshown := _unshown(kind, value, where)) is not None:
        return unshown
    if isinstance(value, date | time):
        value = str(value)
    if kind in _BOUNDS:
        what, write = _BOUNDS[kind]
        return f"{value!r} {what}; write {write.format(**details)}"
    wrong, write = _of_type(kind, value, _field(where, model, raw)) or (
        f"is wrong: {problem['msg'][0].lower()}{problem['msg'][1:]}",
        "correct it",
    )
    return f"{value!r} {wrong}; {write}"


def _of_key(kind: str, details: Mapping[str, Any], where: Where, model: Any, raw: object) -> str | None:
    """Return the problem of a key that is missing or unknown, or whose value chooses no member of a union; None for other problems."""
    if kind in ("missing", "union_tag_not_found"):
        return "is missing; add it to the config"
    if kind == "union_tag_invalid":
        *most, last = details["expected_tags"].split(", ")
        return f"{details['tag']!r} is not allowed; write {', '.join(most)} or {last}"
    return _unknown(where, model, raw) if kind == "extra_forbidden" else None


def _unknown(where: Where, model: Any, raw: object) -> str:
    """Return the problem of a key that the section does not have, or does not have with these values of other keys."""
    inner, value = model, raw
    for depth, part in enumerate(where):
        members = leaves(inner)
        if why := not_chosen(members, value, [str(name) for name in where[depth:]]):
            return why
        inner, value = _inside(part, inner, value)
    known = [name for member in _models_at(where[:-1], model, raw) for name in member.model_fields]
    return f"is unknown{did_you_mean(str(where[-1]), known)}; remove it or correct its name"


def _unshown(kind: str, value: object, where: Where) -> str | None:
    """Return the problem of a value that must not be shown, because it may hold secrets or is too long; None for other values."""
    if "options" in where:
        return (
            "is no text, whole number, true or false; write one, and a name that has dots in quotes, as in "
            "\"kafka.security.protocol\" = 'SSL'"
        )
    if isinstance(value, dict) and kind.startswith("list"):
        return "is one section of a list; write its name in double brackets"
    if isinstance(value, dict | list) and kind.startswith("string"):
        return f"is a {'list' if isinstance(value, list) else 'section'}; write one text in quotes"
    if isinstance(value, dict | list) and kind.startswith(("model", "dict")):
        return "is not a section; write its name in brackets, and its keys below it"
    return None


def _of_type(kind: str, value: object, field: FieldInfo | None) -> tuple[str, str] | None:
    """Return the problem of a value whose type is not that of its key, and a valid value, for example the key's default."""
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


def _field(where: Where, model: Any, raw: object) -> FieldInfo | None:
    """Return the field of a place; None if it is in a table of a user's own names."""
    for member in _models_at(where[:-1], model, raw) if where else ():
        name = str(where[-1])
        if (field := member.model_fields.get(getattr(member, "OLD_NAMES", {}).get(name, name))) is not None:
            return field
    return None


def _models_at(where: Where, model: Any, raw: object) -> Sequence[type[BaseModel]]:
    """Return the types of the section at a place; for a union, the members that the text chooses."""
    for part in where:
        model, raw = _inside(part, model, raw)
    return chosen(leaves(model), raw)


def _inside(part: int | str, model: Any, raw: object) -> tuple[Any, object]:
    """Return the type and the value of a key within a section of a type, or within a table of a user's own names."""
    inner = raw.get(part) if isinstance(raw, Mapping) else None
    for member in chosen(leaves(model), raw):
        field = member.model_fields.get(str(part))
        return (None if field is None else field.annotation), inner
    # In a table of tables a name of the user's own stands between; its value's type is the last one.
    return next(iter(reversed(get_args(model))), None), inner
