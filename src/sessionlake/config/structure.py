"""A config's sections, each built from its text separately: a wrong section does not hide problems of others."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from sessionlake.config.explain import explain_invalid
from sessionlake.config.operator_sections import companions, section_type
from sessionlake.config.operators import SECTIONS
from sessionlake.config.problems import Gathered, Problem
from sessionlake.config.sections import OperatorSection
from sessionlake.config.unions import chosen, leaves
from sessionlake.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from sessionlake.config.load import Config

Raw = dict[str, Any]
_STAND_INS: Mapping[str, Raw] = {
    "pipeline": {"name": "pipeline", "warehouse": "warehouse"},
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"key": "key", "time": "time"},
}
"""Stand-ins for required sections that are wrong, with which the other sections can still be checked."""
_NO_SECTIONS = ("directory", "project_warehouse", "looked_up", "upstream", "section")
"""Fields of the config that its text does not have."""


class StandIn(OperatorSection):
    """A stand-in for an operator's section that is wrong, or not clear, with which the other sections can still be checked."""

    @property
    def grace_us(self) -> int:
        """No grace."""
        return 0

    @property
    def retention_us(self) -> int:
        """No retention."""
        return 0


def structured(raw: Mapping[str, Any], model: "type[Config]", found: Gathered) -> "tuple[Config, set[str]]":
    """Return a config of the valid sections, and the names of those that had to be left out or replaced."""
    rest, wrong = dict(raw), set[str]()
    operator = _asked(rest, found)
    member = None if operator is None else _member(operator, rest[operator])
    section: OperatorSection | None = None
    beside = {} if member is None else {name: rest.pop(name) for name in member.BESIDE if name in rest}
    if operator is None or member is None:
        wrong = {*SECTIONS, *companions()}
        beside = {name: value for name, value in rest.items() if name in OperatorSection.BESIDE}
        rest = {name: value for name, value in rest.items() if name not in wrong}
    else:
        section = _section(operator, member, rest.pop(operator), beside, wrong, found)
    _refuse_unknown(rest, operator, member, model, found)
    _check_inputs(rest, operator, member, wrong, found)
    rest["section"] = section or _stand_in(beside)
    if section is None and member is not None and member.SIDES:
        wrong |= {"source", "event"}  # a stand-in has one input
    try:
        model.model_validate(rest)
    except ValidationError as error:
        found.add(*(problem for problem in explain_invalid(error, model, rest) if problem.key not in wrong))
        wrong |= {str(one["loc"][0]) for one in error.errors(include_url=False) if one["loc"]}
    kept = {name: value for name, value in rest.items() if name not in wrong}
    return model.model_validate({**kept, **{name: v for name, v in _STAND_INS.items() if name in wrong}}), wrong


def section_in(raw: Mapping[str, Any]) -> OperatorSection | None:
    """Return the operator's section of a config's text, with those that go with it; None if it is wrong, or not there."""
    found = Gathered()
    operator = _asked(dict(raw), found)
    if operator is None:
        return None
    member = _member(operator, raw[operator])
    beside = {name: raw[name] for name in member.BESIDE if name in raw}
    section = _section(operator, member, raw[operator], beside, set(), found)
    event = raw.get("event")
    has_key = bool(member.SIDES) or (isinstance(event, Mapping) and event.get("key") is not None)
    return section if section is None or has_key else section.without_key()


def _asked(rest: Raw, found: Gathered) -> str | None:
    """Return the name of the operator's section; None if there is none, or more than one."""
    asked = [name for name in SECTIONS if name in rest]
    for name in asked[1:]:
        found.add(Problem(name, f"can't be used with [{asked[0]}]: a pipeline has one operator; keep one of them"))
    if not asked:
        first, *others = SECTIONS
        # If a name that is there is nearly one of an operator, that one is meant.
        near = any(did_you_mean(name, list(SECTIONS)) for name in rest)
        instead = "" if near else ", or " + " or ".join(f"[{name}]" for name in others) + " in its place"
        found.add(Problem(first, f"is missing; add it to the config{instead}"))
    return asked[0] if len(asked) == 1 else None


def _member(operator: str, value: Any) -> type[OperatorSection]:
    """Return the class of an operator's section that a text asks for; one of the possible ones if it is not clear."""
    member: type[OperatorSection] = chosen(leaves(section_type(operator)), value)[0]  # type: ignore[assignment]
    return member


def _section(
    operator: str, member: type[OperatorSection], value: Any, beside: Raw, wrong: set[str], found: Gathered
) -> OperatorSection | None:
    """Return an operator's section with those that go with it; None if it is wrong. Wrong companions are removed from `beside`."""
    kind = section_type(operator)
    value = _without_companions(operator, member, value, beside, found)
    while True:
        given = {**value, **beside} if isinstance(value, dict) else value
        try:
            section: OperatorSection = TypeAdapter(kind).validate_python(given)
            _ = section.sides
        except ValidationError as error:
            at_top = [name for name in member.BESIDE if name in beside or name not in member.ALSO_KEYS]
            problems = list(explain_invalid(error, kind, given, at=(operator,), beside=at_top))
            found.add(*problems)
            names = {str(problem.key).partition(".")[0] for problem in problems}
            wrong |= names
            beside_wrong = [name for name in beside if name in names]
            for name in beside_wrong:
                del beside[name]
            if operator in names or not beside_wrong:
                wrong |= {operator, *member.BESIDE} - {*beside}
                return None
        except ConfigError as error:
            found.add(Problem.of(str(error)))
            wrong.add(operator)
            return None
        else:
            return section


def _without_companions(operator: str, member: type[OperatorSection], value: Any, beside: Raw, found: Gathered) -> Any:
    """Return an operator's section without keys that are sections of their own; those are problems."""
    for name in sorted(member.ALSO_KEYS):
        if isinstance(beside.get(name), str):
            found.add(Problem(name, "is not a section; write its name in brackets, and its keys below it"))
            del beside[name]
    for name in {*OperatorSection.BESIDE, *member.BESIDE} if isinstance(value, dict) else ():
        if name not in value:
            continue
        is_key = name in member.ALSO_KEYS and isinstance(value[name], str)
        if is_key and name not in beside:
            continue
        both, own = f"does not go with [{name}]; remove one of them", f"is a section of its own; write [{name}]"
        found.add(Problem(f"{operator}.{name}", both if is_key else own))
        value = {other: inner for other, inner in value.items() if other != name}
    return value


def _stand_in(beside: Raw) -> StandIn:
    """Return the stand-in for an operator's section, with the sections that every operator may have if they are valid."""
    try:
        return StandIn.model_validate({name: beside[name] for name in OperatorSection.BESIDE if name in beside})
    except ValidationError:
        return StandIn()


def _refuse_unknown(
    rest: Raw,
    operator: str | None,
    member: type[OperatorSection] | None,
    model: "type[Config]",
    found: Gathered,
) -> None:
    """Report sections that there are not, or that other operators have, and take them away."""
    sections = [name for name in model.model_fields if name not in _NO_SECTIONS]
    for name in [name for name in rest if name not in sections]:
        del rest[name]
        others = companions()
        if name in _NO_SECTIONS:
            found.add(Problem(name, "is no section; remove it"))
        elif name in others and member is not None:
            instead = member.INSTEAD.get(name)
            remedy = "remove it" if instead is None else f"write {instead}"
            having = " or ".join(f"[{other}]" for other in others[name])
            found.add(Problem(name, f"goes with {having}, and not with [{operator}]; {remedy}"))
        else:
            near = did_you_mean(name, [*sections, *SECTIONS, *others])
            found.add(Problem(name, f"is unknown{near}; remove it or correct its name"))


def _check_inputs(
    rest: Raw, operator: str | None, member: type[OperatorSection] | None, wrong: set[str], found: Gathered
) -> None:
    """Refuse [source] and [event] if each input of the operator has its own, and report them missing if there is one input."""
    sides = () if member is None else member.SIDES
    for name in ("source", "event", "lookup"):
        if sides and rest.pop(name, None) is not None:
            told = f"can't be used with [{operator}], which has one on each side; write {operator}.{sides[0]}.{name}"
            found.add(Problem(name, told))
        if not sides and name not in rest and name != "lookup":
            # Of an operator that is not clear, nobody knows whether it needs them.
            if member is not None:
                found.add(Problem(name, "is missing; add it to the config"))
            wrong.add(name)
