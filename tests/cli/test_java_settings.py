"""Which streams get the settings LITTLE_JAVA: those of files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sessionlake.errors import ConfigError
from tests.cli.support import Project

FILES = 'kind = "files"\npath = "events"\nformat = "json"'


@pytest.mark.parametrize("once", [["--once"], []])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (FILES, [True]),
        ('kind = "delta"\npath = "table"', [False]),
        ('kind = "kafka"\nbootstrap_servers = "127.0.0.1:9"\ntopic = "events"\nformat = "json"', [False]),
    ],
)
def test_little_java_is_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: list[bool], once: list[str]
) -> None:
    asked: list[Any] = []

    def open_session(_: Any, **options: Any) -> SparkSession:
        asked.append(options["little_java"])
        raise ConfigError("no session is needed here")

    monkeypatch.setattr("sessionlake.cli.stream.open_session", open_session)
    project = Project(tmp_path / "project")
    write_deltalake(str(project.root / "table"), pa.table({"user": ["u"], "time": [1], "v": [1]}))
    project.edit(FILES, source)
    assert "no session is needed here" in project.call("run", *once).stderr
    assert asked == expected
