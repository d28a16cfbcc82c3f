"""The examples of docs/stores.md, run as they stand there, print what the page says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


def test_examples_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```\n```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 4
    names: dict[str, object] = {}
    for code, printed in examples:
        exec(code, names)  # noqa: S102 - our own page
        assert capsys.readouterr().out == printed


def test_every_public_name_and_method_is_on_the_page() -> None:
    from sessionlake import stores

    text = PAGE.read_text()
    kinds = (stores.KeyValueStore, stores.WindowStore, stores.SessionStore)
    factories = {name for name in vars(stores.Stores) if not name.startswith("_")}
    methods = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    told = {"flush", "name", "is_open", "open_iterators", "persistent", "put_if_absent"}  # what needs no page
    missing = {name for name in factories | methods if not re.search(rf"\b{name}\b", text)}
    assert missing <= told
