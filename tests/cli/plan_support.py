"""Configs of warehouses that real streams have written (tests/fixtures), and `sessionlake plan` over them; no JVM."""

import json
from pathlib import Path
from typing import Any

import tomli_w
from click.testing import CliRunner, Result

from sessionlake.cli import main
from sessionlake.config.load import Config
from tests.operators_table import LAKES
from tests.stream.old_warehouses import FIXTURES, unpack


def written(config: Config, root: Path, **changed: dict[str, Any]) -> Path:
    """Write a config of a lake as TOML, some keys changed."""
    raw = json.loads(
        config.model_dump_json(exclude_unset=True, exclude={"directory", "looked_up", "upstream"}, by_alias=True)
    )
    section = raw.pop("section")
    beside = {name: section.pop(name) for name in config.section.BESIDE if name in section}
    raw |= {config.operator: section, **beside}
    for name, values in changed.items():
        raw[name] = {**raw.get(name, {}), **values}
    file = root / "lake.toml"
    file.write_text(tomli_w.dumps(_without_nulls(raw)))
    return file


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def plan(file: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["plan", str(file), *options])


def lake(root: Path, operator: str) -> Config:
    unpack(root, FIXTURES / f"{operator}-0.2.tar.gz")
    config: Config = LAKES[operator](root, root / "events").config
    return config


def config_table(config: Config, name: str) -> Path:
    return Path(config.pipeline.warehouse) / name


def archive_on(config: Config, archive: object) -> None:
    """Let the commits say that their batches were archived."""
    now = json.dumps(archive).replace('"', '\\"')
    for log in (config_table(config, "session_changelog") / "_delta_log").glob("*.json"):
        log.write_text(log.read_text().replace('\\"archive\\": false', f'\\"archive\\": {now}'))


def changes_of(file: Path) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = json.loads(plan(file, "--json").stdout)[0]["changes"]
    return changes
