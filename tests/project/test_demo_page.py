"""The page of the demo's pipelines while all of them are at work, in a real browser. The picture is the README's."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessionlake.cli.shared import console
from sessionlake.config.project import load_project
from sessionlake.config.serve import Tokens
from sessionlake.examples.demo import prepare
from sessionlake.project.server import prepared
from tests.airflow.browser import missing_browser, open_browser
from tests.airflow.support import wait_for
from tests.serve.server_support import ask, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "-"),
]
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "project.png"
IN_A_CHAIN = {"days", "latecomers"}
CROSSED = """
    const inside = (box, {x, y}) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
    return [...document.querySelectorAll('#graph .curve')].filter(curve => {
      const steps = [...Array(Math.ceil(curve.getTotalLength())).keys()];
      return steps.some(at => inside(curve.nextSibling.getBBox(), curve.getPointAtLength(at)));
    }).map(curve => curve.nextSibling.textContent)
"""
"""Which edges go through the text of their rate."""


@contextmanager
def at_work(root: Path) -> Iterator[None]:
    """Run the demo's pipelines, each of which takes one file a batch, so that all of them have batches for some minutes."""
    prepare(root, console)
    for file in root.glob("*.toml"):
        file.write_text(
            re.sub(r"^max_files_per_batch = \d+", "max_files_per_batch = 1", file.read_text(), flags=re.MULTILINE)
        )
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(root)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        try:
            yield
        finally:
            driver.send_signal(signal.SIGINT)


def pipelines(url: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in ask(url, "/v1/project")[1]["pipelines"]}


def test_all_pipelines_at_work(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    with at_work(root):
        project = load_project(root)
        section = project.configs["commits"].serve.model_copy(update={"port": 0, "tokens": False})
        with running(prepared(project, section, Tokens())) as url, open_browser() as browser:
            browser.open(url)
            names = set(project.configs)

            def all_run() -> bool:
                found = pipelines(url)
                running = {name for name, one in found.items() if one["state"] == "running"}
                return running == names and all(len(one["history"]) > 3 for one in found.values())

            wait_for(all_run, 600)
            wait_for(lambda: browser.text().count("running") == 2 * len(names), 10)
            text = browser.text()
            assert f"{len(names)} pipelines" in text
            rates = "return [...document.querySelectorAll('#graph .curve + text')].map(one => one.firstChild.data)"
            edges = browser.run(rates)
            assert len(edges) == len(IN_A_CHAIN)
            assert "0/s" not in edges
            assert browser.run(CROSSED) == []
            picture = PICTURE if os.environ.get("SESSIONLAKE_PICTURES") else tmp_path / PICTURE.name
            browser.screenshot(picture)
            assert picture.read_bytes().startswith(b"\x89PNG")
