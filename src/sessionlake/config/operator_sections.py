"""The operators' sections: the type that a text asks for, and the section itself with its companions."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, cast

from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from sessionlake.config.explain import explain_invalid
from sessionlake.config.operators import OPERATORS, SECTIONS, named
from sessionlake.config.problems import Gathered, Problem
from sessionlake.config.sections import OperatorSection
from sessionlake.config.unions import chosen, leaves
from sessionlake.errors import ConfigError, did_you_mean

Raw = dict[str, Any]


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
    """Return the operators' names by companion section. Imports the sections of all operators."""
    found: dict[str, list[str]] = {}
    for name in SECTIONS:
        members = cast("list[type[OperatorSection]]", leaves(section_type(name)))
        for other in dict.fromkeys(other for member in members for other in member.BESIDE):
            found.setdefault(other, []).append(name)
    return found


class StandIn(OperatorSection):
    """A stand-in for a wrong or unclear operator's section. The other sections can be checked with it."""

    @property
    def grace_us(self) -> int:
        """No grace."""
        return 0

    @property
    def retention_us(self) -> int:
        """No retention."""
        return 0


def section_in(raw: Mapping[str, Any]) -> OperatorSection | None:
    """Return the operator's section of a config's content, with its companions; None if it is wrong or missing."""
    found = Gathered()
    operator = operator_asked(dict(raw), found)
    if operator is None:
        return None
    member = section_class(operator, raw[operator])
    beside = {name: raw[name] for name in member.BESIDE if name in raw}
    section = operator_section(operator, member, raw[operator], beside, set(), found)
    event = raw.get("event")
    has_key = bool(member.SIDES) or (isinstance(event, Mapping) and event.get("key") is not None)
    return section if section is None or has_key else section.without_key()


def operator_asked(rest: Raw, found: Gathered) -> str | None:
    """Return the name of the operator's section; None if there is none, or several."""
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


def section_class(operator: str, value: Any) -> type[OperatorSection]:
    """Return the class of the operator's section that a text asks for; a possible class if the text is not clear."""
    member: type[OperatorSection] = chosen(leaves(section_type(operator)), value)[0]  # type: ignore[assignment]
    return member


def operator_section(
    operator: str, member: type[OperatorSection], value: Any, beside: Raw, wrong: set[str], found: Gathered
) -> OperatorSection | None:
    """Return an operator's section with its companions; None if it is wrong. Wrong companions are removed from `beside`."""
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
    """Return an operator's section without keys that must be sections; each is a problem."""
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


def stand_in(beside: Raw) -> StandIn:
    """Return the stand-in for an operator's section, with the valid sections that every operator may have."""
    try:
        return StandIn.model_validate({name: beside[name] for name in OperatorSection.BESIDE if name in beside})
    except ValidationError:
        return StandIn()
