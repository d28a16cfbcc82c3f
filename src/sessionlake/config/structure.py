"""A config's sections, each made of what its text says, one by one: a section that is wrong does not hide what is wrong with others."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sessionlake.config.explain import did_you_mean, explain_invalid
from sessionlake.config.operators import OPERATORS, section_class
from sessionlake.config.problems import Gathered, Problem
from sessionlake.config.sections import OperatorSection
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.config.load import Config

Raw = dict[str, Any]
_STAND_INS: Mapping[str, Raw] = {
    "pipeline": {"name": "pipeline", "warehouse": "warehouse"},
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"key": "key", "time": "time"},
    "session": {"gap": "30 minutes"},
}
"""What stands for sections that are needed and wrong, so that the others are checked all the same."""
_OF_OPERATORS = ("session", "ttl", "quarantine", "emit")


def structured(raw: Mapping[str, Any], model: "type[Config]", found: Gathered) -> "tuple[Config, set[str]]":
    """Return a config of sections that are right one by one, and the names of those that had to be left out or replaced."""
    operator, value, rest = _parted(raw, found)
    section = None if operator in (None, "session") else _section(str(operator), value, found)
    wrong: set[str] = set()
    if section is None and operator != "session":
        wrong = {*_OF_OPERATORS, *OPERATORS}
    others = {} if section is None else {str(operator): section}
    rest = _with_inputs(rest, section, operator, wrong, found)
    try:
        model.model_validate(rest)
    except ValidationError as error:
        problems = [p for p in explain_invalid(error, model, rest) if p.key not in wrong]
        found.add(*(_near_operator(problem) for problem in problems))
        wrong |= {str(one["loc"][0]) for one in error.errors(include_url=False) if one["loc"]}
    kept = {name: value for name, value in rest.items() if name not in wrong}
    needed = {name: value for name, value in _STAND_INS.items() if name in wrong and not (others and name == "session")}
    return model.model_validate({**kept, **needed}).model_copy(update={"other": others}), wrong


def _parted(raw: Mapping[str, Any], found: Gathered) -> tuple[str | None, Any, Raw]:
    """Return the operator that is asked for, None where that is not clear, its section where it is another than sessions, and the rest."""
    rest = dict(raw)
    for name in ("directory", "other"):
        if rest.pop(name, None) is not None:
            found.add(Problem(name, "is no section; remove it"))
    asked = [name for name in OPERATORS if name in rest]
    for name in asked[1:]:
        found.add(Problem(name, f"stands beside [{asked[0]}], and a pipeline computes one thing; keep one of them"))
    if not asked:
        found.add(Problem("session", f"is missing; add it to the config{_instead(rest)}"))
    if len(asked) != 1:
        return None, None, {name: value for name, value in rest.items() if name not in (*asked, *_OF_OPERATORS)}
    (operator,) = asked
    _check_beside(operator, rest, found)
    if operator == "session":
        return operator, None, rest
    value = rest.pop(operator)
    if isinstance(value, dict):
        value = {**value, **{name: rest.pop(name) for name in section_class(operator).BESIDE if name in rest}}
    return operator, value, rest


def _check_beside(operator: str, rest: Raw, found: Gathered) -> None:
    """Tell of sections that the operator has not got, and take them away."""
    if operator == "session" and rest.pop("emit", None) is not None:
        told = "stands beside [session], whose changes are sent with each batch; write session.emit"
        found.add(Problem("emit", told))
    if operator in ("window", "join") and rest.pop("ttl", None) is not None:
        keeps = f"{operator}.retention_time or {operator}.retention_count"
        told = f"is for sessions and keyed tables; what a [{operator}] keeps goes by {keeps}, remove it"
        found.add(Problem("ttl", told))


def _instead(rest: Mapping[str, Any]) -> str:
    """Return what may stand in place of [session]; nothing where a name that is there is nearly one of an operator."""
    if any(did_you_mean(name, list(OPERATORS)) for name in rest):
        return ""
    return ", or " + " or ".join(f"[{name}]" for name in OPERATORS if name != "session") + " in its place"


def _near_operator(problem: Problem) -> Problem:
    """Return a problem of an unknown section with the operator's that was probably meant."""
    key = problem.key or ""
    near = did_you_mean(key, list(OPERATORS))
    if "." in key or not near or not problem.message.startswith("is unknown; "):
        return problem
    return Problem(key, problem.message.replace("is unknown", f"is unknown{near}", 1))


def _with_inputs(
    rest: Raw, section: OperatorSection | None, operator: str | None, wrong: set[str], found: Gathered
) -> Raw:
    """Return the sections with those that say what is read, as the operator has one input or several."""
    rest = dict(rest)
    for name in ("source", "event"):
        if section is not None and section.sides:
            if rest.pop(name, None) is not None:
                told = f"stands beside [{operator}], which has one on each side; write {operator}.left.{name}"
                found.add(Problem(name, told))
        elif name not in rest:
            # Of an operator that is wrong, or not clear, nobody knows whether it needs them.
            if section is not None or operator == "session":
                found.add(Problem(name, "is missing; add it to the config"))
            wrong.add(name)
    return rest


def _section(name: str, value: Any, found: Gathered) -> OperatorSection | None:
    """Return an operator's section; None where it is wrong."""
    model = section_class(name).variant(value if isinstance(value, dict) else {})
    try:
        section = model.model_validate(value)
        _ = section.sides
    except ValidationError as error:
        problems = list(explain_invalid(error, model, value, at=(name,), beside=model.BESIDE))
        # Which keys a section has hangs on its axis: a wrong one makes others look wrong.
        axis = [problem for problem in problems if problem.key == f"{name}.by"]
        found.add(*(axis or problems))
        return None
    except ConfigError as error:
        found.add(Problem.of(str(error)))
        return None
    return section
