"""`init`, `check` and `try` on events with odd names, depths and bytes: dead letters with reason and place, or one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sessionlake.cli import main
from sessionlake.config.load import load_config

PATTERN = """
[pipeline]
name = "logs"
warehouse = "warehouse"
[source]
kind = "files"
path = "in"
format = "text"
pattern = '{pattern}'
[event]
key = "user"
time = "at"
[session]
gap = "30 minutes"
"""


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, ["--quiet", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def events(folder: Path, *more: bytes, **columns: Any) -> Path:
    """Write 60 events of four users, each with the same further values, and further lines."""
    rows = [
        {"user_id": f"u{n % 4}", "ts": f"2025-01-01T{n // 10:02}:00:{n % 10:02}Z", **columns, "n": n} for n in range(60)
    ]
    folder.mkdir()
    path = folder / "events.json"
    path.write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode() + b"".join(line + b"\n" for line in more))
    return path


@pytest.mark.parametrize("depth", [31, 32, 33, 500, 3000])
def test_fields_beyond_the_depth_are_not_looked_at(depth: int, tmp_path: Path) -> None:
    deep = b'{"f":' * depth + b'"x"' + b"}" * depth
    line = b'{"user_id":"u1","ts":"2025-01-01T09:00:00Z","deep":%b}' % deep
    path = events(tmp_path / "in", line, line)
    assert run("init", path, "-o", tmp_path / "c.toml").exit_code == 0
    assert "62 events" in run("check", tmp_path / "c.toml").stdout
    assert "62 events = 62 accepted + 0 dead" in run("try", path).stdout


def test_lists_beyond_the_depth_are_not_looked_at(tmp_path: Path) -> None:
    line = b'{"user_id":"u1","ts":"2025-01-01T09:00:00Z","deep":%b}' % (b"[" * 500 + b"]" * 500)
    path = events(tmp_path / "in", line)
    assert run("init", path, "-o", tmp_path / "c.toml").exit_code == 0
    assert "61 events = 61 accepted + 0 dead" in run("try", path).stdout


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("a.b", "`a.b`"),
        ("c`d", "`c``d`"),
        ("e\nf", "e\nf"),
        ("g\x01h", "g\x01h"),
        ("", "``"),
        ('q"', 'q"'),
        ("[x]", "`[x]`"),
    ],
)
def test_a_column_of_any_name_may_be_the_key(column: str, name: str, tmp_path: Path) -> None:
    path = events(tmp_path / "in", **{column: "k"})
    result = run("init", path, "-o", tmp_path / "c.toml", "--key", name, "--time", "ts")
    assert (result.exit_code, result.stderr) == (0, "")
    assert load_config(tmp_path / "c.toml").event.key == name
    assert "60 events" in run("check", tmp_path / "c.toml").stdout
    assert "60 events = 60 accepted + 0 dead" in run("try", path, "--key", name, "--time", "ts").stdout


def test_names_that_differ_only_in_case_have_one_aggregate(tmp_path: Path) -> None:
    path = events(tmp_path / "in", Name=1, name=2, user={"ID": "a", "id": "b"}, a={"b": 3}, a_b=4)
    for more in ([], ["--table"], ["--window", "hopping"]):
        (tmp_path / "c.toml").unlink(missing_ok=True)
        result = run("init", path, "-o", tmp_path / "c.toml", "--key", "user_id", *more)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "60 events" in run("check", tmp_path / "c.toml").stdout
    assert load_config(tmp_path / "c.toml").aggregates == {
        "Name_sum": "sum(Name)",
        "a_b_sum": "sum(a_b)",
        "n_sum": "sum(n)",
    }


def test_a_table_has_one_of_two_fields_of_a_name(tmp_path: Path) -> None:
    """A row's column is called as the last field."""
    path = events(tmp_path / "in", lib={"name": "x", "version": 3, "Kind": 1}, version=2, kind=4, name="y")
    result = run("init", path, "-o", tmp_path / "c.toml", "--key", "user_id", "--table")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "60 events" in run("check", tmp_path / "c.toml").stdout
    assert load_config(tmp_path / "c.toml").section.model_dump()["columns"] == ["version", "kind", "name", "n"]
    assert '# Left out: "lib.name", "lib.version", "lib.Kind", called' in (tmp_path / "c.toml").read_text()


def test_bytes_that_are_no_utf8_are_dead_letters_with_their_place(tmp_path: Path) -> None:
    path = events(tmp_path / "in", b'{"user_id":"u\xff","ts":"2025-01-01T09:00:00Z"}')
    found = run("try", path).stdout
    assert "61 events = 60 accepted + 1 dead" in found
    assert "1 dead: bad JSON: not UTF-8 at byte 13 (" in found
    assert "events.json:61)" in found


def test_a_line_of_a_preset_that_is_cut_off_is_a_dead_letter(tmp_path: Path) -> None:
    line = '10.0.0.{} - - [29/Nov/2024:05:0{}:03 +0100] "GET /a HTTP/1.1" 200 12 "-" "curl"\n'
    text = "".join(line.format(n % 4, n % 10) for n in range(60))
    (tmp_path / "access.log").write_text(text + text[:40] + "\n" + text[:20])
    found = run("try", tmp_path / "access.log").stdout
    assert "62 events = 60 accepted + 2 dead" in found
    assert "2 dead: bad text: does not match the pattern (" in found
    assert "access.log:61)" in found


def test_a_pattern_that_would_try_all_ways_takes_no_time(tmp_path: Path) -> None:
    """Python's `re` would not end within a life."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("a" * 200_000 + "!\n" + "aaa 2025-01-01T00:00:00Z\n")
    (tmp_path / "c.toml").write_text(PATTERN.format(pattern=r"^(?P<user>(?:a+)+) (?P<at>\S+)$"))
    assert "1 event, 1 dead letter (bad text: does not match the pattern" in run("check", tmp_path / "c.toml").stdout


def test_a_config_among_its_events_is_warned_of(tmp_path: Path) -> None:
    path = events(tmp_path / "in")
    (line,) = run("init", path, "-o", tmp_path / "in" / "c.toml").stderr.splitlines()
    assert line.startswith("sessionlake: warning: ")
    assert line.endswith("move the events into a directory of their own, then start init again")
