"""What pydantic says of a config, in one line that names the key, the value and what to write instead."""

import difflib
from types import NoneType, UnionType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def explain_invalid(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem of a config in one line; `model` is the class that was to be made of it."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    value = problem.get("input")
    cause = problem.get("ctx", {}).get("error")
    match problem["type"]:
        case "missing":
            return f"{where}: is missing; add it to the config"
        case "extra_forbidden":
            return f"{where}: is unknown{_did_you_mean(problem['loc'], model)}; remove it or correct its name"
        case "literal_error":
            return f"{where}: {value!r} is not allowed; write {problem['ctx']['expected']}"
        case "value_error" if cause is not None:
            return f"{where}: {cause}"
        case _:
            return f"{where}: {value!r} is wrong: {problem['msg'][0].lower()}{problem['msg'][1:]}; correct it"


def _did_you_mean(where: tuple[int | str, ...], model: Any) -> str:
    for part in where[:-1]:
        fields = getattr(model, "model_fields", None)
        # In a table of tables a name of the user's own stands between; what is under it is the table's value.
        model = fields[str(part)].annotation if fields else get_args(model)[-1]
        if isinstance(model, UnionType):  # a section that may be missing: Section | None
            model = next(kind for kind in get_args(model) if kind is not NoneType)
    close = difflib.get_close_matches(str(where[-1]), list(getattr(model, "model_fields", {})), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
