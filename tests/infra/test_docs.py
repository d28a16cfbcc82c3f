"""What the pages name is there: links, headings that links lead to, paths of files, and rules that the code cites."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.infra_files import ROOT
from tests.infra.pages import PAGES

SOURCES = [file for folder in ("src", "tests", "dags", "benchmarks") for file in sorted((ROOT / folder).rglob("*.py"))]
ROOTS = (ROOT, ROOT / "src" / "sessionlake", ROOT / "docs")
"""What a path in a page may be relative to, beside the page's own folder."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"(?<!-o )(?<![\w./:<{*-])(?:[\w-]+/)+[\w.-]+\.(?:py|md|toml|json|ya?ml|ipynb)\b(?![\w/*{])")
"""A path of a file; not one that a command makes."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"docs/rules\.md\)?[,:]? rules? ([\d, toand]+)")


def slugs(page: str) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> Iterator[str]:
    """Yield the links and paths of a page's text that lead nowhere."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in slugs(target.read_text())):
            yield link
    for path in FILE.findall(text):
        if not any((root / path).exists() for root in (page.parent, *ROOTS)):
            yield path


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text())) == []


def test_links_and_paths_that_lead_nowhere_are_found() -> None:
    text = (
        "[a](docs/kafka.md) [b](docs/nothing.md) [c](docs/kafka.md#source) [d](docs/kafka.md#sauce) [e](https://x.y/z.md)\n"
        "`store/rocks.py`, `src/sessionlake/store/rocks.py`, `store/rocket.py`, `pipelines/*.py`\n"
        "```console\n[f](nothing) spark-submit pipelines/nothing.py -o demo/new.toml\n```\n"
    )
    found = ["docs/nothing.md", "docs/kafka.md#sauce", "docs/nothing.md", "store/rocket.py", "pipelines/nothing.py"]
    assert list(broken(ROOT / "README.md", text)) == found


def rules_by_page() -> dict[str, list[int]]:
    """Return the numbers of each page's rules, in its order."""
    return {
        page.name: [int(number) for number in re.findall(r"^##+ Rule (\d+):", page.read_text(), re.MULTILINE)]
        for page in sorted((ROOT / "docs" / "rules").glob("*.md"))
    }


def numbers_in(text: str) -> set[int]:
    """Return the numbers that a list such as `1, 8, 10 to 12` names, ends included."""
    spans = re.findall(r"(\d+)(?: to (\d+))?", text)
    return {number for first, last in spans for number in range(int(first), int(last or first) + 1)}


def test_a_rule_is_in_one_page() -> None:
    numbers = [number for page in rules_by_page().values() for number in page]
    assert len(numbers) == len(set(numbers)) >= 191


def test_the_index_names_the_page_of_each_rule() -> None:
    index = (ROOT / "docs" / "rules.md").read_text()
    rows = dict(re.findall(r"^\| \[[^\]]+\]\(rules/([\w-]+\.md)\).*\| ([\d, to]+) \|$", index, re.MULTILINE))
    assert {page: numbers_in(text) for page, text in rows.items()} == {
        page: set(numbers) for page, numbers in rules_by_page().items()
    }


def test_cited_rules_are_in_a_page() -> None:
    rules = {number for numbers in rules_by_page().values() for number in numbers}
    cited = {
        (int(number), file)
        for file in SOURCES
        for found in CITED.findall(file.read_text())
        for number in re.findall(r"\d+", found)
    }
    assert {"rules.py", "corrections.py", "model.py"} <= {file.name for _, file in cited}
    assert {(number, str(file)) for number, file in cited if number not in rules} == set()
