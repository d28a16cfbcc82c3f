"""The exit codes: one table says what they mean, and everything outside of the package that decides by them agrees."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from sessionlake.errors import ExitCode, NotNeededError, SessionlakeError

ROOT = Path(__file__).parents[1]


def tree(root: type[SessionlakeError]) -> Iterator[type[SessionlakeError]]:
    yield root
    for cls in root.__subclasses__():
        if cls.__module__ == root.__module__:
            yield from tree(cls)


def documented() -> dict[int, tuple[str, set[str]]]:
    """Return by code the name and the classes that docs/commands.md has."""
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \|[^|]*\|([^|]*)\|", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE
    )
    return {int(code): (name, set(re.findall(r"`(\w+)`", classes))) for code, name, classes in rows}


def test_the_documented_table_is_what_errors_have() -> None:
    by_code: dict[int, set[str]] = {code: set() for code in ExitCode}
    for cls in tree(SessionlakeError):
        by_code[cls.exit_code].add(cls.__name__)
    by_code[ExitCode.USER] = {"SessionlakeError"}  # the others are not named
    assert documented() == {code: (code.name, by_code[code]) for code in ExitCode}


def test_dags_have_the_same_numbers() -> None:
    theirs = runpy.run_path(str(ROOT / "dags" / "sessionlake_airflow" / "exit_codes.py"))
    ours = {code.name: int(code) for code in ExitCode if code is not ExitCode.DONE}
    assert {name: theirs[name] for name in theirs if name.isupper() and name != "EXPLAINED"} == ours
    assert sorted(theirs["EXPLAINED"]) == sorted(ours.values())


def test_a_run_that_has_not_failed_is_not_the_users_fault() -> None:
    assert {cls.exit_code for cls in tree(NotNeededError)} == {ExitCode.NOT_NEEDED, ExitCode.BUSY}
