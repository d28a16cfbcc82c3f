"""The command `serve`, as a process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from sessionlake.cli import main
from tests.serve.replica_support import Stream
from tests.serve.server_support import ask


def written(stream: Stream) -> Path:
    config = stream.config
    file = stream.root / "p.toml"
    sections = {"pipeline", "source", "event", "session", "aggregates"}
    file.write_text(tomli_w.dumps(config.model_dump(include=sections, exclude_none=True)))
    return file


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run([("a", 0)])
    command = [sys.executable, "-m", "sessionlake", "serve", str(written(stream)), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("p at http://127.0.0.1:")
        url = line.split()[2].rstrip(",")
        assert ask(url, "/v1/sessions", key="a")[1]["sessions"][0]["event_count"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_missing_extra_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(Stream(tmp_path))
    monkeypatch.setattr("sessionlake.extras.has_module", lambda module: module != "uvloop")
    with pytest.raises(SystemExit, match="2"):
        main(["serve", str(file)])
    said = "sessionlake: serve: Python module 'uvloop' is missing; run: pip install 'sessionlake[serve]'\n"
    assert capsys.readouterr().err == said
