"""Every operator's section is found in the same way, and no module of the config but `operators.py` knows an operator's name."""

import ast
from pathlib import Path
from typing import Any

import pytest

import sessionlake.config as package
from sessionlake.config.load import parse_config
from sessionlake.config.operator_sections import companions, section_type
from sessionlake.config.operators import OPERATORS, SECTIONS
from sessionlake.config.unions import leaves
from sessionlake.errors import ConfigError

SOURCE = {"kind": "files", "path": "events", "format": "json"}
SIDES = {
    side: {"name": name, "size": "1 hour", "source": SOURCE, "event": {"time": "t"}}
    for side, name in (("left", "a"), ("right", "b"))
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "session": {"gap": "30 minutes"},
    "window": {"kind": "tumbling", "size": "1 hour", "retention": "1 day"},
    "count": {"kind": "sliding", "by": "count", "size": 3, "retention": "1 day", "retention_count": 9},
    "table": {},
    "group": {},
    "join": {"on": ["id"], "retention": "1 day", **SIDES},
    "table_join": {"on": ["id"], **{at: {k: v for k, v in side.items() if k != "size"} for at, side in SIDES.items()}},
    "process": {"class": "shop:Funnel", "retention": "1 day", "output": {"step": "string"}},
}
"""A section of each operator."""


def raw(name: str, **more: Any) -> dict[str, Any]:
    found = {"pipeline": {"name": "p", "warehouse": "w"}, OPERATORS[name].section: EXAMPLES[name], **more}
    return found if name in ("join", "table_join") else {**found, "source": SOURCE, "event": {"key": "k", "time": "t"}}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_reached_through_section_entry_and_operator(name: str) -> None:
    config = parse_config(raw(name), Path("/p"))
    assert config.entry is OPERATORS[name]
    assert config.operator == OPERATORS[name].section
    assert type(config.section) in leaves(section_type(config.operator))
    assert config.section.in_words()
    assert config.grace_us == config.section.grace_us


@pytest.mark.parametrize("name", OPERATORS)
def test_sections_that_go_with_an_operator_are_fields_of_its_own(name: str) -> None:
    section = type(parse_config(raw(name), Path("/p")).section)
    assert set(section.BESIDE) <= section.model_fields.keys()
    assert set(section.SIDES) <= section.model_fields.keys()
    for other in sorted(companions().keys() - set(section.BESIDE)):
        with pytest.raises(ConfigError, match=rf"^{other}: goes with .* and not with \[{OPERATORS[name].section}\]; "):
            parse_config(raw(name, **{other: {}}), Path("/p"))


@pytest.mark.parametrize("module", sorted(Path(package.__path__[0]).glob("*.py")), ids=lambda path: path.name)
def test_no_module_of_the_config_but_one_names_an_operator(module: Path) -> None:
    texts = {node.value for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Constant)}
    assert module.name == "operators.py" or not texts & set(SECTIONS)
