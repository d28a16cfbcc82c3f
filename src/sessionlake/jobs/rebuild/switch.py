"""The edit of a config by which it uses another warehouse."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable

from sessionlake.config.file import ConfigFile, Text, parse_toml, read_text, rewrite
from sessionlake.config.load import Config, config_of, load_config
from sessionlake.config.paths import normal_path
from sessionlake.config.positions import places
from sessionlake.config.project import problems_with
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, JobError

_KEY, _SECTION = "warehouse", "pipeline"


@dataclass(frozen=True)
class Switch:
    """The edit that makes a config use another warehouse."""

    line: int
    """The line that changes, or the first line that is added; counted from 1."""
    before: str | None
    """The line that changes; None if lines are added."""
    after: str
    """The line as it becomes, or the lines that are added."""
    text: str
    """The whole file after the edit."""
    old: str
    """The whole file before the edit."""
    warehouse: str
    """The new warehouse, as the config names it."""

    @property
    def by_hand(self) -> str:
        """What a user does who makes the edit without the command."""
        if self.before is None:
            return f"add {_setting(self.warehouse)} to its section [{_SECTION}]"
        return f"write it into line {self.line}"


def plan_switch(config_path: str | Path, warehouse: str) -> Switch:
    """Return the edit of `warehouse` in section [pipeline]; comments and layout stay.

    In a project, whose pipelines need no such line, it is added, with the section if there is none. Raises ConfigError
    if there is no line outside a project, or the value takes several; JobError if it names this warehouse already.
    """
    text = read_text(config_path)
    content = parse_toml(text, config_path)
    in_project = ConfigFile.of(Text(str(config_path), text, content)).project is not None
    found = _changed(text, warehouse, may_add=in_project) or (_added(text, warehouse, content) if in_project else None)
    if found is None:
        raise ConfigError(
            f'config: {str(config_path)!r} has no line `warehouse = "..."` in section [pipeline] that could be switched; write one'
        )
    return found


def _changed(text: str, warehouse: str, *, may_add: bool) -> Switch | None:
    """Return the edit of the line with the warehouse, or with the whole section; None if there is no such line."""
    document = tomlkit.parse(text)
    section = document.get(_SECTION)
    in_one_line = may_add and isinstance(section, InlineTable) and _KEY not in section
    if not isinstance(section, dict) or not (in_one_line or isinstance(section.get(_KEY), str)):
        return None
    section[_KEY] = warehouse
    edited = tomlkit.dumps(document)
    before, after = text.split("\n"), edited.split("\n")
    if text == edited:
        raise in_use(warehouse)
    if len(before) != len(after):
        return None
    (at,) = (n for n, line in enumerate(after) if line != before[n])
    return Switch(at + 1, before[at].rstrip("\r"), after[at].rstrip("\r"), edited, text, warehouse)


def _added(text: str, warehouse: str, content: Mapping[str, Any]) -> Switch | None:
    """Return the edit that adds the warehouse: below the section's header, before its first key, or in a new section at the end."""
    section = content.get(_SECTION, {})
    if not isinstance(section, dict) or _KEY in section:
        return None
    lines, header = re.findall(r"[^\n]*\n|[^\n]+", text), places(text).get(_SECTION)
    if header is None:
        at, added = len(lines), [*([""] if lines else []), f"[{_SECTION}]", _setting(warehouse)]
    elif lines[header.line - 1].lstrip().startswith("["):
        at, added = header.line, [_setting(warehouse)]
    else:
        at, added = header.line - 1, [f"{_SECTION}.{_setting(warehouse)}"]
    end = "\r\n" if "\r\n" in text else "\n"
    head, tail = "".join(lines[:at]), "".join(lines[at:])
    if head and not head.endswith("\n"):
        head += end
    edited = head + "".join(f"{line}{end}" for line in added) + tail
    if parse_toml(edited, "the edit") != {**content, _SECTION: {**section, _KEY: warehouse}}:
        return None
    first = head.count("\n") + 1 + (added[0] == "")
    return Switch(first, None, "\n".join(filter(None, added)), edited, text, warehouse)


def _setting(warehouse: str) -> str:
    return f"{_KEY} = {tomlkit.item(warehouse).as_string()}"


def in_use(warehouse: str) -> JobError:
    """Return the error for a path that the pipeline uses already."""
    return JobError(f"--warehouse: {warehouse!r} is the pipeline's warehouse; write a path that is not in use")


def switched(config_path: str | Path, switch: Switch) -> Config:
    """Return the config as it is after the switch.

    Raises JobError if the new warehouse is the old one, inside it or around it, or does not go together with those of other
    pipelines of the project.
    """
    file = ConfigFile.of(Text(str(config_path), switch.text, parse_toml(switch.text, config_path)))
    config = config_of(file)
    new, old = (normal_path(one.pipeline.warehouse) for one in (config, load_config(config_path)))
    if new == old:
        raise in_use(switch.warehouse)
    if f"{new}/".startswith(f"{old}/") or f"{old}/".startswith(f"{new}/"):
        raise JobError(
            f"--warehouse: {switch.warehouse!r} is inside the pipeline's warehouse {old!r} or around it; write a path outside of it"
        )
    for problem in problems_with(file):
        raise JobError(f"--warehouse: {switch.warehouse!r} can't be one of the project: {problem}")
    return config


def apply_switch(config_path: str | Path, switch: Switch) -> None:
    """Replace the old config by the switched config, whole or not at all; permissions and links stay."""
    file = Path(config_path).resolve()
    if read_text(file) != switch.old:
        raise JobError(f"config: {str(config_path)!r} has changed meanwhile; {switch.by_hand} yourself")
    mark = codecs.BOM_UTF8 if file.read_bytes().startswith(codecs.BOM_UTF8) else b""
    rewrite(file, mark + switch.text.encode(), lambda: failpoints.hit("rebuild_before_switch"))
