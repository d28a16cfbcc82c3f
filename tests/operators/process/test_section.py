"""The section [process], and how a class that can't be had is refused: one line, with file and line of the class."""

import sys
from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import ConfigError
from sessionlake.operators.process.section import ProcessSection
from sessionlake.operators.process.user_class import load_class, made

GOOD: dict[str, Any] = {"class": "shop.rules:Funnel", "retention": "7 days", "output": {"step": "string"}}


def section(**values: Any) -> ProcessSection:
    found = ProcessSection.model_validate({**GOOD, **values})
    found.check()
    return found


def test_defaults() -> None:
    found = section()
    assert (found.grace_us, found.retention_us, found.max_state_bytes) == (0, 7 * 86_400_000_000, 1 << 20)
    assert found.in_words() == (
        "rows of the class shop.rules:Funnel over the rows of each key, with state that is kept for 7 days"
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"class": "Funnel"}, "process.class: 'Funnel' is no import path"),
        ({"retention": "0 seconds"}, "process.retention: '0 seconds' must be longer than zero"),
        ({"grace": "8 days"}, "process.retention: '7 days' is shorter than process.grace, '8 days'"),
        ({"output": {"Position": "long"}}, "process.output: 'Position' is a column of every output"),
        ({"output": {"a": "long", "A": "long"}}, "process.output: 'A' is there twice"),
    ],
)
def test_what_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        section(**values)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "broken_import",
            "import os\nraise RuntimeError('no licence')\n",
            "RuntimeError: no licence at broken_import.py:2",
        ),
        ("broken_syntax", "class\n", "SyntaxError"),
        ("nothing_there", "", "has no attribute 'Funnel')"),
    ],
)
def test_a_class_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_class(f"{name}:Funnel", str(tmp_path))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_constructor_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "needs_more.py").write_text(
        "from sessionlake.operators.process import Processor\n\n\n"
        "class Funnel(Processor):\n    def __init__(self):\n        raise KeyError('HOME')\n"
    )
    with pytest.raises(ConfigError, match=r"KeyError: 'HOME' at needs_more\.py:6"):
        made("needs_more:Funnel", load_class("needs_more:Funnel", str(tmp_path)))
