"""A key of several columns on the command line."""

from pathlib import Path

from click.testing import CliRunner

from sessionlake.cli import main
from tests.cli.support import CONFIG
from tests.stream.old_warehouses import FIXTURES, unpack
from tests.support import write_config


def test_a_value_without_its_column_says_how_the_key_is_written(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text(CONFIG.replace('key = "user"', 'key = ["day", "country"]'))
    assert '"country"' in file.read_text()
    done = CliRunner().invoke(main, ["sessions", str(file), "--key", "2026-11-20"])
    assert done.exit_code == 2
    line = "write --key day=2026-11-20 --key country=TEXT, or the first ones of them\n"
    assert done.stderr.endswith(f"--key: '2026-11-20' names no column of the key; {line}")


def test_a_key_of_one_column_is_written_without_its_name(tmp_path: Path) -> None:
    unpack(tmp_path, FIXTURES / "session-0.2.tar.gz")
    file = write_config(tmp_path)
    hint = "; a key of one column is written without its name: --key u7\n"
    told = CliRunner().invoke(main, ["sessions", str(file), "--key", "key=u7"])
    assert (told.exit_code, told.output.endswith(hint)) == (0, True)
    told = CliRunner().invoke(main, ["sessions", str(file), "--key", "u7=u7"])
    assert (told.exit_code, told.output.endswith("as of batch 2\n")) == (0, True)
