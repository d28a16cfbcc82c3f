"""Files that are no configs are refused in one line, and no other pipeline of the project is held up."""

import os
from pathlib import Path

import pytest

from sessionlake.config.file import Text
from sessionlake.config.project import read_project
from sessionlake.errors import ConfigError

DEEP = {
    "brackets": "x = " + "[" * 5000 + "\n",
    "closed brackets": "x = " + "[" * 400 + "]" * 400 + "\n",
    "tables of one line": "x = " + "{a=" * 5000 + "\n",
    "dots": f"{'.'.join('a' * 5000)} = 1\n",
    "a header": f"[{'.'.join('a' * 5000)}]\n",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_a_deep_text_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"^[^\n]*x\.toml:1: is nested deeper than 50 levels; write less of it$"):
        Text.read(tmp_path / "x.toml")


def test_a_pipe_and_a_device_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name in ("x.toml", "zero.toml"):
        with pytest.raises(
            ConfigError, match=rf"^config: '[^\n]*{name}' is no regular file; pass the path of a TOML file$"
        ):
            Text.read(tmp_path / name)


def test_a_file_beyond_a_mebibyte_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("#" * ((1 << 20) - 1) + "\n")
    assert Text.read(file).content == {}
    file.write_text("#" * (1 << 20) + "\n")
    with pytest.raises(
        ConfigError, match=r"^config: '[^\n]*x\.toml' is larger than 1 MiB; pass the path of a TOML file$"
    ):
        Text.read(file)


def test_a_deep_file_takes_no_other_pipeline_of_a_project_away(tmp_path: Path) -> None:
    (tmp_path / "project.toml").touch()
    (tmp_path / "deep.toml").write_text(DEEP["brackets"])
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "clicks.toml").write_text(
        '[source]\nkind = "files"\npath = "in"\nformat = "json"\n[event]\nkey = "u"\ntime = "t"\n[session]\ngap = "1 hour"\n'
    )
    found = read_project(tmp_path)
    assert list(found.project.members) == ["clicks"]
    assert [str(problem).partition("is ")[2].partition(";")[0] for problem in found.problems] == [
        "nested deeper than 50 levels",
        "no regular file",
    ]
