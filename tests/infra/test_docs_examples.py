"""The pages' examples do what the pages say: configs can be loaded, and what needs no Spark runs."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import tomli_w

from sessionlake import Pipeline
from sessionlake.cli import main
from sessionlake.config.load import load_config, parse_config
from sessionlake.config.operators import SECTIONS
from sessionlake.config.project import load_project
from tests.infra.infra_files import ROOT
from tests.infra.pages import PAGES

OPERATORS = set(SECTIONS)
REST: dict[str, Any] = {
    "pipeline": {"name": "example", "warehouse": "warehouse"},
    "source": {"kind": "files", "path": "events", "format": "json"},
    "event": {"key": "user_id", "time": "happened_at"},
}
"""What a page's config leaves to others; joins have their own."""
IN_FRONT = ("visits", "customers", "orders", "orders_of_customers")
"""Pipelines next to the page's, which it may read."""


def examples(language: str) -> Iterator[Any]:
    """Yield the fenced texts of a language, of all pages, by page and line."""
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], id=f"{page.relative_to(ROOT)}:{line}")


def test_a_project_can_be_loaded(tmp_path: Path) -> None:
    """docs/projects.md names the file of each of its texts."""
    page = (ROOT / "docs" / "projects.md").read_text()
    files = re.findall(r"^```toml\n# (\w+\.toml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for name, text in files:
        (tmp_path / name).write_text(text)
    (config,) = load_project(tmp_path).configs.values()
    assert len(files) == 2
    assert (config.source.kind, config.source.bootstrap_servers) == ("kafka", "kafka:9092")
    assert config.pipeline.warehouse == "s3://lake/clicks/visits"


def is_config(text: str) -> bool:
    return bool(OPERATORS & tomllib.loads(text).keys()) and "\nconnection = " not in text


@pytest.mark.parametrize("text", [e for e in examples("toml") if is_config(e.values[0])])
def test_a_config_can_be_loaded(text: str, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    for name in IN_FRONT:
        pipeline = {"pipeline": {"name": name, "warehouse": name}, "session": {"gap": "30 minutes"}}
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps({**REST, **pipeline}))
    raw = tomllib.loads(text)
    operator = (OPERATORS & raw.keys()).pop()
    raw = raw if operator in ("join", "table_join") else {**REST, **raw}
    config = parse_config(raw, tmp_path)
    assert config.operator == operator
    file = tmp_path / "example.toml"
    file.write_text(tomli_w.dumps(raw))
    file.write_text(Pipeline.from_toml(file).to_toml())
    assert load_config(file) == config


@pytest.mark.parametrize("block", [*examples("console")])
def test_commands_take_the_words_of_a_console(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README's are run too, as far as that is cheap: test_readme.py."""
    (tmp_path / "keys").write_text("user-7\n")
    (tmp_path / "keys").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    for line in block.replace("\\\n", " ").splitlines():
        program, name, *words = [*shlex.split(line, comments=True), "", ""]
        if program == "sessionlake":
            command = main.get_command(click.Context(main), name)
            assert command, line
            command.make_context(name, words[:-2])


@pytest.mark.parametrize("text", [e for e in examples("python") if re.search(r"Harness\(|\.test\(", e.values[0])])
def test_a_harness_does_what_the_page_says(text: str) -> None:
    assert "assert" in text
    exec(text, {})  # noqa: S102 (our own pages)
