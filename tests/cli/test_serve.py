"""The command `serve`, as a process."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sessionlake.cli import main
from sessionlake.client import QueryClient
from tests.serve.replica_support import Stream
from tests.serve.server_support import ask

OURS = "a-token-of-our-own"
VARIABLE = "SESSIONLAKE_SERVE_TOKENS"


def written(stream: Stream, **serve: Any) -> Path:
    config = stream.config
    file = stream.root / "p.toml"
    sections = config.model_dump(include={"pipeline", "source", "event", "aggregates"}, exclude_none=True)
    session = config.section.model_dump(include={"gap"})
    file.write_text(tomli_w.dumps({**sections, "session": session, "serve": serve}))
    return file


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    made = Stream(tmp_path)
    made.run([("a", 0)])
    return made


def command(config: Path) -> list[str]:
    return [sys.executable, "-m", "sessionlake", "serve", str(config), "--port", "0"]


def environment(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name != VARIABLE}, **more}


def asked(url: str, headers: Mapping[str, str] | None = None) -> int:
    return ask(url, "/v1/sessions", headers, key="a")[0]


@pytest.mark.parametrize(
    ("section", "given", "without"), [({}, {VARIABLE: OURS}, 401), ({"tokens": False}, {}, 200)], ids=["ours", "none"]
)
def test_it_serves_until_it_is_stopped(stream: Stream, section: dict[str, Any], given: Any, without: int) -> None:
    with subprocess.Popen(
        command(written(stream, **section)), stdout=subprocess.PIPE, text=True, env=environment(**given)
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("p at http://127.0.0.1:")
        url = line.split()[2].rstrip(",")
        assert asked(url) == without
        assert asked(url, {"Authorization": f"Bearer {OURS}"}) == 200
        process.send_signal(signal.SIGTERM)
        assert (process.wait(60), process.stdout.read()) == (0, "")


@pytest.mark.parametrize("shown_by", ["stdout", pytest.param("stderr", marks=pytest.mark.slow)])
def test_a_token_that_is_made_is_shown_on_a_terminal_alone(stream: Stream, shown_by: str) -> None:
    ours, theirs = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, shown_by: theirs}
    with subprocess.Popen(command(written(stream)), env=environment(COLUMNS="40"), **streams) as process:
        os.close(theirs)
        shown = read_until(ours, b"#token=")
        link = re.search(r"(http://127\.0\.0\.1:[0-9]+)/#token=([0-9a-f]{48})\r?\n", shown)
        assert link is not None, shown
        url, token = link.groups()
        assert [asked(url), asked(url, {"Authorization": f"Bearer {token}"})] == [401, 200]
        with QueryClient(link[0].strip()) as client:
            assert len(list(client.fetch("a"))) == 1
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        rest = (process.stdout or process.stderr).read()
        assert token.encode() not in rest
    os.close(ours)


def read_until(terminal: int, text: bytes) -> str:
    """Return what a terminal shows, up to the end of the line with a text."""
    found = b""
    while text not in found or not found.endswith(b"\n"):
        found += os.read(terminal, 4096)
    return found.decode()


def test_without_a_terminal_no_token_is_made(stream: Stream) -> None:
    found = subprocess.run(command(written(stream)), capture_output=True, text=True, env=environment(), check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == (
        "sessionlake: serve.tokens: SESSIONLAKE_SERVE_TOKENS holds no token, and there is no terminal to show one that is made "
        "for the run; set it, or write tokens = false to let all accounts of this machine read\n"
    )


def test_a_missing_extra_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(Stream(tmp_path))
    monkeypatch.setattr("sessionlake.extras.has_module", lambda module: module != "uvloop")
    with pytest.raises(SystemExit, match="2"):
        main(["serve", str(file)])
    said = "sessionlake: serve: Python module 'uvloop' is missing; run: pip install 'sessionlake[serve]'\n"
    assert capsys.readouterr().err == said
