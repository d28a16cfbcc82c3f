"""The command `files`: where what lies beside the package is, and copies that leave what others changed."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionlake.cli import main
from sessionlake.config.shipped import SHIPPED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", SHIPPED)
def test_it_prints_the_place(folder: str) -> None:
    assert CliRunner().invoke(main, ["files", folder]).stdout == f"{ROOT / folder}\n"


def test_a_copy_has_what_airflow_loads_and_may_be_repeated(tmp_path: Path) -> None:
    target = tmp_path / "airflow" / "dags"
    for _ in range(2):
        result = CliRunner().invoke(main, ["files", "dags", "--to", str(target)])
        assert (result.exit_code, result.stdout) == (0, f"24 files in {target}\n")
    copied = {file.relative_to(target) for file in target.rglob("*") if file.is_file()}
    assert copied == {
        file.relative_to(ROOT / "dags") for end in ("py", "json") for file in (ROOT / "dags").rglob(f"*.{end}")
    }


def test_a_changed_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    changed, other = tmp_path / "sessions.json", tmp_path / "mine.json"
    changed.write_text("{}")
    other.write_text("{}")
    words = ["files", "expectations", "--to", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    said = f"sessionlake: --to: {str(changed)!r} is there and differs; pass --force to replace it\n"
    assert (result.exit_code, result.stderr, sorted(tmp_path.iterdir())) == (2, said, [other, changed])
    assert CliRunner().invoke(main, [*words, "--force"]).exit_code == 0
    assert changed.read_text() == (ROOT / "expectations" / "sessions.json").read_text()
    assert other.read_text() == "{}"
