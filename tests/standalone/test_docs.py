"""The examples of docs/standalone.md do what they say."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "standalone.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_example(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) == 4
    exec(compile(EXAMPLES[number], f"{PAGE.name}, example {number}", "exec"), {})  # noqa: S102 (our own page)
