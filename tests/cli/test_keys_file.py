"""Keys come by a file or by standard input, each exactly as it stands there, and never by the command line."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.cli import main
from sessionlake.cli.forget import read_keys
from sessionlake.errors import JobError

LINES = st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n")), min_size=1)


def written(path: Path, content: bytes, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@given(LINES, st.booleans(), st.booleans())
def test_keys_are_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    bom: bool,  # noqa: FBT001
    crlf: bool,  # noqa: FBT001
) -> None:
    """Unless all keys end with a carriage return, which can't be told from the line ends of Windows; nor a first one with a BOM."""
    keys = [line + "x" if line.endswith("\r") else line.lstrip("\ufeff") for line in lines]
    end = "\r\n" if crlf else "\n"
    text = "".join(f"{key}{end}" for key in keys)
    path = written(tmp_path_factory.mktemp("keys") / "keys.txt", ("\ufeff" * bom + text).encode())
    assert read_keys(path) == [*keys, ""]


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"a\rb\nc\n", ["a\rb", "c", ""]),
        (b"a\r\nb\n", ["a\r", "b", ""]),
        (b"a\r\nb", ["a", "b"]),
        (b"\xef\xbb\xbfanna", ["anna"]),
        ("a\u2028a\x0b\x85".encode(), ["a\u2028a\x0b\x85"]),
    ],
)
def test_line_feed_alone_ends_a_key(tmp_path: Path, content: bytes, keys: list[str]) -> None:
    assert read_keys(written(tmp_path / "keys.txt", content)) == keys


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(JobError, match=rf"has mode {mode:04o}, .*; chmod 600 it$"):
        read_keys(written(tmp_path / "keys.txt", b"anna", mode))


def test_file_that_is_no_text_is_refused_without_its_content(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"byte 4 is no UTF-8") as caught:
        read_keys(written(tmp_path / "keys.txt", b"anna\xff"))
    assert "anna" not in str(caught.value)
    with pytest.raises(JobError, match="No such file"):
        read_keys(str(tmp_path / "none"))


@pytest.mark.parametrize("words", [["anna"], ["--", "anna", "-b"], ["--keys-file", "f", "anna"]])
def test_keys_on_the_command_line_are_refused_and_not_repeated(words: list[str]) -> None:
    done = CliRunner().invoke(main, ["forget", "clicks.toml", *words])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "--keys-file" in done.stderr
    assert "anna" not in done.output


def test_standard_input_is_read_like_a_file() -> None:
    done = CliRunner().invoke(main, ["forget", "clicks.toml", "--keys-file", "-"], input=b"\xff")
    assert "'-' can't be read (byte 0 is no UTF-8)" in done.stderr
    none = CliRunner().invoke(main, ["forget", "clicks.toml"])
    assert (none.exit_code, none.stderr.count("\n")) == (2, 1)
