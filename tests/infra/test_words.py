"""The words of docstrings, comments, pages and errors are ones that a stranger knows.

Each phrase of WORDS has a budget per 10,000 words; above it the test names the places and the better words. A budget only goes down.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.infra.infra_files import ROOT
from tests.infra.prose import SOURCES, prose, prose_of_code, prose_of_errors, rate

RIDDLES = frozenset(
    [
        "absent",
        "alone",
        "asked",
        "basis",
        "found",
        "gathered",
        "kept",
        "made",
        "moment",
        "raised",
        "reach",
        "removed",
        "saved",
        "single",
        "told",
        "trees",
        "way",
    ]
)
"""Words that say nothing about a module's content."""
OF_SESSIONS = ("operators/sessions", "config/operators.py", "standalone", "testing", "config/airflow.py")
"""Places that may name the sessionizer: the operator, its entry, the classes that run it, and the name of Airflow's pool."""


@dataclass(frozen=True)
class Word:
    """A phrase, the better words, and its budget per 10,000 words."""

    pattern: str
    better: str
    budget: float = 1.0


WORDS = (
    Word(r"(?<![.-])\bwhere\b(?!:| =)", "'if' for a condition, 'in which' for a place", 10),
    Word(r"\b(?:of|for|by|from|with|to|in|is|are|as|has|and|or) what\b|^what\b", "the noun that is meant", 5),
    Word(r"\bwhat (?:is|are|was|were|has|have|had|comes?|came|goes|can|must|may)\b", "the noun that is meant", 5),
    Word(r"\b(?:told|tells?)\b", "'reported', 'known', 'says'", 2),
    Word(r"\bbeside\b", "'with', 'next to', 'besides'", 2),
    Word(r"\b(?:hangs?|hanging) on\b", "'depends on'"),
    Word(r"\bgo(?:es)? by\b", "'uses', 'depends on', 'follows'"),
    Word(r"\bso many\b", "'that number of'"),
    Word(r"\banew\b", "'again', 'recreated'"),
    Word(r"\bhand(?:s|ed)? in\b", "'supply', 'submit'", 2),
    Word(r"\bof (?:which|these|those)\b", "a sentence of its own", 5),
)


def places(pattern: str, texts: dict[Path, str]) -> list[str]:
    """Return each file with the phrase and how often, the worst first."""
    counted = {file: len(re.findall(pattern, text, re.IGNORECASE | re.MULTILINE)) for file, text in texts.items()}
    found = sorted(((n, str(file.relative_to(ROOT))) for file, n in counted.items() if n), reverse=True)
    return [f"{file}: {n}" for n, file in found]


@pytest.mark.parametrize("kind", ["code", "errors", "pages"])
@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.better)
def test_words_that_a_stranger_stumbles_over_are_rare(word: Word, kind: str) -> None:
    texts = prose(kind)
    found = rate(word.pattern, texts)
    assert found <= word.budget, (
        f"/{word.pattern}/ comes {found:.1f} times in 10,000 words of {kind}, and {word.budget:g} is the most: "
        f"write {word.better}; {places(word.pattern, texts)[:20]}"
    )


@pytest.mark.parametrize("kind", ["code", "pages"])
def test_there_are_examples(kind: str) -> None:
    assert rate(r"\bfor example\b", prose(kind)) >= 5


def test_no_module_has_a_riddle_for_a_name() -> None:
    names = {file for file in SOURCES if RIDDLES & set(file.stem.split("_"))}
    assert sorted(str(file.relative_to(ROOT)) for file in names) == []


def test_only_sessions_are_sessionized() -> None:
    """A stream of windows, joins or tables sessionizes nothing: its runs are called `run`."""
    package = ROOT / "src" / "sessionlake"
    named = {str(file.relative_to(package)) for file in SOURCES if "sessioniz" in file.read_text().lower()}
    assert {file for file in named if not file.startswith(OF_SESSIONS)} == set()
    assert {place for place in OF_SESSIONS if any(file.startswith(place) for file in named)} == {*OF_SESSIONS}


def test_the_phrases_are_found() -> None:
    code = '"""Return what is left where nothing is told."""\n# It hangs on what comes.\nx = "where"\n'
    texts = {ROOT / "a.py": "\n".join(prose_of_code(code))}
    assert [rate(word.pattern, texts) > 0 for word in WORDS] == [True, False, True, True, False, True, *[False] * 5]
    assert list(prose_of_errors('raise ConfigError(f"where {x} is told")')) == ["where ", " is told"]
    assert list(prose_of_errors('Problem(key, "is told")\nlog.warning("told")\nother("told")')) == ["is told", "told"]
