"""What is said of a line that is no TOML: the key, and how it is written."""

import pytest

from sessionlake.config.file import parse_toml
from sessionlake.config.problems import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('gap = "1 h"\ngap = "2 h"', "gap: is written twice in its section; keep one of the two"),
        ("[a]\n[a]", "a: the section [a] is written twice; put all its keys below one of them"),
        ("[a.b]\n[a.b]", "a.b: the section [a.b] is written twice; put all its keys below one of them"),
        ("kind = files", 'kind: the text has no quotes; write kind = "..."'),
        ("gap = 30 minutes  # a while", 'gap: the text has no quotes; write gap = "..."'),
        ("total = sum(v)", 'total: the text has no quotes; write total = "..."'),
        ("once = True", "once: 'True' is written in small letters; write once = true"),
        ('path = "C:\\users"', "path: a backslash begins an escape in double quotes; write the text in single quotes"),
        ('path = "C:\\data"', "path: a backslash begins an escape in double quotes; write the text in single quotes"),
    ],
)
def test_the_likely_cause(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        parse_toml(f"\n{text}", "clicks.toml")
    assert str(raised.value).partition(": ")[2] == f"is no valid TOML: {said}"
    assert raised.value.problems[0].line == 2 + text.count("\n")


@pytest.mark.parametrize("text", ["[event", "= 3", "a = [1, 2", "a = 'x", 'a = "x', "key"])
def test_of_other_lines_the_parsers_words_are_told(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"is no valid TOML .*; mend that line"):
        parse_toml(text, "clicks.toml")


def test_a_secret_without_quotes_is_not_told() -> None:
    with pytest.raises(InvalidConfigError) as raised:
        parse_toml("password = hunter2", "clicks.toml")
    assert "hunter2" not in str(raised.value)
