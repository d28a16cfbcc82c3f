"""A config's sections, each built separately: a wrong section does not hide problems of others."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sessionlake.config.config import Config
from sessionlake.config.explain import explain_invalid
from sessionlake.config.operator_sections import companions, operator_asked, operator_section, section_class, stand_in
from sessionlake.config.operators import SECTIONS
from sessionlake.config.problems import Gathered, Problem
from sessionlake.config.sections import OperatorSection
from sessionlake.errors import did_you_mean

Raw = dict[str, Any]
_STAND_INS: Mapping[str, Raw] = {
    "pipeline": {"name": "pipeline", "warehouse": "warehouse"},
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"key": "key", "time": "time"},
}
"""Stand-ins for wrong required sections. The other sections can be checked with them."""
_NO_SECTIONS = ("directory", "project_warehouse", "looked_up", "upstream", "section")
"""Fields of Config that no text has."""


def structured(raw: Mapping[str, Any], found: Gathered) -> tuple[Config, set[str]]:
    """Return a config of the valid sections, and the names of left out or replaced sections."""
    rest, wrong = dict(raw), set[str]()
    operator = operator_asked(rest, found)
    member = None if operator is None else section_class(operator, rest[operator])
    section: OperatorSection | None = None
    beside = {} if member is None else {name: rest.pop(name) for name in member.BESIDE if name in rest}
    if operator is None or member is None:
        wrong = {*SECTIONS, *companions()}
        beside = {name: value for name, value in rest.items() if name in OperatorSection.BESIDE}
        rest = {name: value for name, value in rest.items() if name not in wrong}
    else:
        section = operator_section(operator, member, rest.pop(operator), beside, wrong, found)
    _refuse_unknown(rest, operator, member, found)
    _check_inputs(rest, operator, member, wrong, found)
    rest["section"] = section or stand_in(beside)
    if section is None and member is not None and member.SIDES:
        wrong |= {"source", "event"}  # a stand-in has one input
    try:
        Config.model_validate(rest)
    except ValidationError as error:
        found.add(*(problem for problem in explain_invalid(error, Config, rest) if problem.key not in wrong))
        wrong |= {str(one["loc"][0]) for one in error.errors(include_url=False) if one["loc"]}
    kept = {name: value for name, value in rest.items() if name not in wrong}
    return Config.model_validate({**kept, **{name: v for name, v in _STAND_INS.items() if name in wrong}}), wrong


def _refuse_unknown(
    rest: Raw,
    operator: str | None,
    member: type[OperatorSection] | None,
    found: Gathered,
) -> None:
    """Report and remove sections that are unknown, or that other operators have."""
    sections = [name for name in Config.model_fields if name not in _NO_SECTIONS]
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
    """Refuse [source] and [event] if the operator has several inputs, and report them missing if it has one."""
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
