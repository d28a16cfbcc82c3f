"""`sessionlake plan` over warehouses that real streams have written (tests/fixtures); no JVM."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
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


@pytest.mark.parametrize("operator", LAKES)
def test_nothing_differs_from_what_it_was_made_with(tmp_path: Path, operator: str) -> None:
    result = plan(written(lake(tmp_path, operator), tmp_path))
    assert result.exit_code == 0, result.output
    assert "  nothing differs\nrun: takes it\n" in result.output


def test_each_change_has_its_class(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    changed = {
        "session": {"grace": "3 us", "gap": "7 us"},
        "pipeline": {"shards": 3},
        "aggregates": {"more": "count(v)"},
    }
    file = written(config, tmp_path, **changed)
    result = plan(file, "--json")
    assert result.exit_code == 2
    (found,) = json.loads(result.stdout)
    classes = {change["setting"]: change["change"] for change in found["changes"]}
    assert (classes["session.grace"], classes["session.gap"]) == ("live", "rebuild")
    assert found["runs"] is False
    text = plan(file).output
    assert "run: refused for session.gap" in text
    assert "session.gap" in plan(file, "--format", "csv").output


def test_a_restore_is_told(tmp_path: Path) -> None:
    file = written(lake(tmp_path, "window"), tmp_path, pipeline={"shards": 7})
    begun = time.perf_counter()
    result = plan(file)
    assert time.perf_counter() - begun < 2
    assert result.exit_code == 0
    assert "-> 7: the stores are restored from the tables\nrun: takes it" in result.output


def test_before_the_first_batch(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    file = tmp_path / "new.toml"
    unpacked = lake(tmp_path / "old", "session")
    file.write_text(written(unpacked, tmp_path, pipeline={"warehouse": str(tmp_path / "warehouse")}).read_text())
    assert plan(file).output.splitlines()[-1] == "run: begins with this config"
