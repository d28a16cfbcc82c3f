"""Queries of Spark's documentation and of public repositories, tests/propose/queries: the outcome of each, and Spark's result."""

import datetime as dt
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.problems import InvalidConfigError
from sessionlake.propose.query import Pipeline
from sessionlake.propose.sample import Sample, read_sample
from tests.propose.query_support import config_of, made_of

FOLDER = Path(__file__).with_name("queries")
QUERIES = sorted(FOLDER.glob("*.sql"))
START = dt.datetime(2021, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Return a sample with the columns that Spark's examples have, and a value."""
    rows = [
        f'{{"a": "A{n % 3}", "b": "{(START + dt.timedelta(seconds=37 * n)).isoformat()}", "v": {n}}}\n'
        for n in range(50)
    ]
    place = tmp_path_factory.mktemp("sample") / "tab.json"
    place.write_text("".join(rows))
    return read_sample(str(place), 1 << 20)


def noted(text: str, word: str) -> str | None:
    found = re.search(rf"^-- {word}: (.*)$", text, re.MULTILINE)
    return None if found is None else found[1]


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_the_outcome_of_a_query(file: Path, sample: Sample) -> None:
    text = file.read_text()
    assert noted(text, "quoted") or noted(text, "after"), "names its source"
    samples, line = [sample] * int(noted(text, "samples") or 1), noted(text, "line")
    if line is not None:
        with pytest.raises(InvalidConfigError) as raised:
            made_of(text, *samples)
        (problem,) = raised.value.problems
        assert f"{problem.line}:{problem.column} {problem.key}" == line
        return
    made = made_of(text, *samples)
    config_of(made)
    assert settings(made) == tomllib.loads(file.with_suffix(".toml").read_text())


def settings(made: Pipeline) -> dict[str, Any]:
    """Return the config of a query without [pipeline] and the place of the sample, and the SELECT over its live view."""
    content = tomllib.loads(made.text)
    del content["pipeline"]
    for read in (content, *content.get("join", {}).values()):
        if isinstance(read, dict) and "source" in read:
            del read["source"]["path"]
    return {"select": made.select, **content}


def test_there_are_ten_at_least() -> None:
    assert len(QUERIES) >= 10
