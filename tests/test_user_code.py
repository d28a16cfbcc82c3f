"""Errors of users' code name the line in the user's own file."""

from pathlib import Path
from types import FunctionType

import pytest

import sessionlake
from sessionlake.user_code import described, raised

PACKAGE = Path(sessionlake.__file__).parent


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("/code/alerts.py", " at alerts.py:2"),
        (f"{PACKAGE}_alerts/rules.py", " at rules.py:2"),  # its name only begins like the package's
        (f"{PACKAGE}/jobs/publish/function.py", ""),
    ],
)
def test_an_error_names_the_users_line(file: str, place: str) -> None:
    code = compile("def fails():\n    raise ValueError('ann')\n", file, "exec").co_consts[0]
    with pytest.raises(ValueError, match="ann") as found:
        FunctionType(code, {})()
    error = found.value.with_traceback(found.tb.tb_next)  # without the frame of this test, which is no user's
    assert described(error) == f"ValueError: ann{place}"
    assert raised(error) == f"ValueError{place}"
