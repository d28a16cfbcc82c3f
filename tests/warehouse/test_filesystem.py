"""Small files beside the tables: which of them are read without the JVM."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse.filesystem import Files


class Hadoop:
    """Hadoop's file system and path of a local URI, as far as reading goes."""

    def __init__(self, uri: str) -> None:
        self.path, self.asked = Path(uri.removeprefix("file:")), uri

    def open(self, _path: Any) -> Any:
        if not self.path.exists():
            raise Py4JJavaError("FileNotFoundException", MagicMock())
        return MagicMock(readAllBytes=self.path.read_bytes)

    def exists(self, _path: Any) -> bool:
        return self.path.exists()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URIs that are read through Hadoop."""
    found: list[str] = []

    def file_system(_files: Files, uri: str) -> tuple[Hadoop, None]:
        found.append(uri)
        return Hadoop(uri), None

    monkeypatch.setattr(Files, "file_system", file_system)
    return found


def test_a_path_is_read_as_it_is_and_a_uri_through_hadoop(tmp_path: Path, asked: list[str]) -> None:
    text = 'one\u2028still one\r\n"é"\n'
    (tmp_path / "a").write_bytes(text.encode())
    files = Files(MagicMock(), str(tmp_path), CHANGELOG)
    assert files.read_text(f"{tmp_path}/a") == text
    assert asked == []
    # As listings give it, with one slash.
    assert files.read_text(f"file:{tmp_path}/a") == text
    assert asked == [f"file:{tmp_path}/a"]


def test_no_file_is_no_text(tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / "a").touch()
    files = Files(MagicMock(), str(tmp_path), CHANGELOG)
    for place in (f"{tmp_path}/b", f"{tmp_path}/b/c", f"{tmp_path}/a/c", f"file:{tmp_path}/b"):
        assert files.read_text(place) is None, place
    assert len(asked) == 1
