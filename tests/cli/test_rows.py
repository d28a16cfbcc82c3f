"""How rows go out: the forms, their limits, and the lines about them."""

import json
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sessionlake.cli.layout import cell
from sessionlake.cli.rows import limit_option, print_objects, print_rows, row_formats
from sessionlake.config.secrets import reveal


@click.command()
@click.argument("count", type=int)
@limit_option
@row_formats()
def shown(count: int, limit: int | None, form: str) -> None:
    print_rows(["n", "n"], [[n, str(n)] for n in range(count)], limit=limit, form=form, no_rows_line="nothing there")


def run(*arguments: str) -> tuple[list[str], str]:
    result = CliRunner().invoke(shown, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines(), result.stderr


MORE = "only the first {} rows; raise --limit for more"


def test_a_table_stops_at_a_hundred_rows_and_says_so() -> None:
    lines, _ = run("101")
    assert (len(lines), lines[-1]) == (102, MORE.format(100))
    assert run("100")[0][-1].split() == ["99", "99"]


@pytest.mark.parametrize(("form", "heads"), [("json", 0), ("csv", 1)])
def test_programs_get_all_rows_unless_a_limit_is_given(form: str, heads: int) -> None:
    lines, said = run("101", "--format", form)
    assert (len(lines), said) == (101 + heads, "")
    if form == "json":
        assert [row["n"] for row in json.loads("\n".join(lines))] == [*range(101)]
    lines, said = run("101", "--format", form, "--limit", "7")
    assert (len(lines), said) == (7 + heads, f"{MORE.format(7)}\n")


@pytest.mark.parametrize(
    ("arguments", "stdout", "stderr"),
    [([], ["nothing there"], ""), (["--json"], ["[]"], "nothing there\n"), (["--format", "csv"], ["n,n"], "nothing there\n")],
)  # fmt: skip
def test_no_rows(arguments: list[str], stdout: list[str], stderr: str) -> None:
    assert run("0", *arguments) == (stdout, stderr)


def test_columns_of_one_name_are_told_apart_in_an_object() -> None:
    assert run("1", "--json")[0] == ['[{"n": 0, "n_1": "0"}]']
    assert run("1", "--format", "csv")[0] == ["n,n", "0,0"]


def test_csv_quotes_and_writes_lists_as_json() -> None:
    @click.command()
    def command() -> None:
        rows: list[list[Any]] = [['a,"b"\nc', None, True, ["x", 1]]]
        print_rows(["text", "none", "yes", "list"], rows, limit=None, form="csv")

    assert CliRunner().invoke(command).stdout == 'text,none,yes,list\n"a,""b""\nc",,true,"[""x"", 1]"\n'


def test_an_object_as_csv_is_flat_and_has_no_lists() -> None:
    @click.command()
    def command() -> None:
        print_objects([{"a": 1, "b": {"c": None, "d": "x"}, "e": [1]}], "csv")
        print_objects([{"a": 2, "b": {"c": 3, "d": "y"}, "e": []}], "csv", headed=False)

    assert CliRunner().invoke(command).stdout == "a,b_c,b_d\n1,,x\n2,3,y\n"


@pytest.mark.parametrize("form", ["json", "csv"])
def test_an_object_has_the_reference_in_place_of_a_secret(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_ROWS", "swordfish of rows")
    word = reveal("sink.options", "${env:PASSWORD_OF_ROWS}")

    @click.command()
    def command() -> None:
        print_objects([{"name": "clicks", "error": f"login with {word} failed"}], form)

    said = CliRunner().invoke(command).stdout
    assert "login with ${env:PASSWORD_OF_ROWS} failed" in said
    assert word not in said


@pytest.mark.parametrize(
    ("form", "shown_as"), [("csv", "a\\u001b[2J\\u202e\\u009b"), ("json", "a\\u001b[2J\\u202e\\u009b")]
)
def test_nothing_steers_a_terminal(form: str, shown_as: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "a\x1b[2J\u202e\x9b"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows(["k"], [[key]], limit=None, form=form)
    told = capsys.readouterr().out
    assert shown_as in told
    assert form != "json" or json.loads(told) == [{"k": key}]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    print_rows(["k"], [[key]], limit=None, form="csv")
    assert capsys.readouterr().out == f"k\n{key}\n"


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\x9b", "\x1b", "\r"])
def test_a_table_shows_no_mark_that_turns_a_text(mark: str) -> None:
    assert cell(f"a{mark}b") == f"a{mark!r}b".replace("'", "")
    assert cell("שלום 👨‍👩‍👧") == "שלום 👨‍👩‍👧"
