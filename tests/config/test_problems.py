"""All problems of a config at once, each with its place and in the user's own words."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.load import load_config
from sessionlake.config.positions import Place, error_place, places
from sessionlake.config.problems import InvalidConfigError, Problem
from tests.cli.support import CONFIG


def told(root: Path, text: str) -> list[str]:
    """Return the lines of a config's problems, without the file's name."""
    file = root / "clicks.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfigError) as raised:
        load_config(file)
    lines = str(raised.value).split("\n")
    assert all(line.startswith(f"{file}:") for line in lines)
    return [line.removeprefix(f"{file}:") for line in lines]


def changed(*pairs: tuple[str, str]) -> str:
    text = CONFIG
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


GAP = 'gap = "30 minutes"'


@pytest.mark.parametrize(
    ("pairs", "lines"),
    [
        ([(GAP, 'gap = "half an hour"')], ["17: session.gap: 'half an hour' is not a duration; write a number and a unit, as in '30 minutes'"]),
        ([(GAP, "gap = 30")], ["17: session.gap: 30 is not a duration; write a number and a unit, as in '30 minutes'"]),
        (
            [(GAP, 'gpa = "30 minutes"')],
            [
                "16: session.gap: is missing; add it to the config",
                "17: session.gpa: is unknown (did you mean 'gap'?); remove it or correct its name",
            ],
        ),
        ([("shards = 2", 'shards = "four"')], ["4: pipeline.shards: 'four' is not a whole number; write 4"]),
        ([("shards = 2", "shards = 0")], ["4: pipeline.shards: 0 is too small; write 1 or more"]),
        ([("shards = 2", "shards = 9999")], ["4: pipeline.shards: 9999 is too large; write 4096 or less"]),
        ([("shards = 2", "archive = 7")], ["4: pipeline.archive: 7 is not true or false; write one of them, without quotes"]),
        ([('name = "clicks"', "name = 7")], ["2: pipeline.name: 7 is not a text; write it in quotes, as in '7'"]),
        ([('name = "clicks"', 'name = "my clicks"')], ["2: pipeline.name: 'my clicks' must be letters, digits, _ and -; write for example 'clicks'"]),
        ([('format = "json"', 'format = "jsn"')], ["9: source.format: 'jsn' is not allowed; write 'json', 'csv', 'parquet', 'text', 'avro' or 'protobuf'"]),
        (
            [('kind = "files"\npath = "events"', 'kind = "kafka"\nservers = "b:9092"')],
            ["8: source.servers: is unknown (did you mean 'bootstrap_servers'?); remove it or correct its name"],
        ),
        (
            [("[session]", "[sesion]")],
            [" session: is missing; add it to the config", "16: sesion: is unknown (did you mean 'session'?); remove it or correct its name"],
        ),
        ([('key = "user"\n', "")], ["11: event.key: is missing; add it to the config"]),
        (
            [("[aggregates]", "[serve]\nport = -1\ntables_timeout = 3\n[aggregates]"), (GAP, "gap = 1"), ("total =", "state =")],
            [
                "17: session.gap: 1 is not a duration; write a number and a unit, as in '30 minutes'",
                "22: serve.port: -1 is too small; write 0 or more",
                "23: serve.tables_timeout: 3 is not a duration; write a number and a unit, as in '30 minutes'",
                "25: aggregates.state: 'state' can't name a column; tables and checks keep that name for themselves, write another one",
            ],
        ),
    ],
)  # fmt: skip
def test_all_problems_are_told_by_line_and_key(tmp_path: Path, pairs: list[tuple[str, str]], lines: list[str]) -> None:
    assert sorted(told(tmp_path, changed(*pairs))) == sorted(lines)


def test_what_does_not_go_together_is_told_beside_what_is_wrong_by_itself(tmp_path: Path) -> None:
    text = changed(
        ("2 hours", "35 minutes"),
        ("shards = 2", "shards = 0"),
        ("[aggregates]", '[sink.kafka]\nbootstrap_servers = "b:1"\ntopic = "a b"\n[aggregates]'),
    )
    assert [line.partition(":")[0] for line in told(tmp_path, text)] == ["4", "19", "23"]


def test_a_text_that_is_no_toml_is_told_by_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "clicks.toml").write_text(changed(("[event]", "[event")))
    with pytest.raises(InvalidConfigError) as raised:
        load_config(tmp_path / "clicks.toml")
    (problem,) = raised.value.problems
    assert (problem.line, problem.column) == (11, 7)
    assert "is no valid TOML (Expected ']' at the end of a table declaration); mend that line" in str(problem)


def test_a_text_that_ends_too_early_is_told_at_its_last_line() -> None:
    text = 'a = 1\nb = """x\n'
    with pytest.raises(tomllib.TOMLDecodeError) as raised:
        tomllib.loads(text)
    assert error_place(raised.value, text)[1].line == 2


PLACED = """\
# gap = 1
a.b = 1
[one] # [two]
text = \"\"\"
gap = 2
[three]
\"\"\"
  list = [
  1, # gap = 3
]
inline = { gap = "4", "in" = { deep = 5 } }
[one."two x"]
'quoted' = 6
[[many]]
gap = 7
[[many]]
gap = 8
"""


def test_places_are_those_of_keys_and_not_of_what_looks_like_them() -> None:
    found = {name: (place.line, place.column) for name, place in places(PLACED).items()}
    assert found == {
        "a": (2, 1), "a.b": (2, 3), "one": (3, 2), "one.text": (4, 1), "one.list": (8, 3),
        "one.inline": (11, 1), "one.inline.gap": (11, 12), "one.inline.in": (11, 24), "one.inline.in.deep": (11, 32),
        "one.two x": (12, 7), "one.two x.quoted": (13, 2), "many": (14, 3),
        "many.0": (14, 1), "many.0.gap": (15, 1), "many.1": (16, 1), "many.1.gap": (17, 1),
    }  # fmt: skip


NAMES = st.text("abcxyz_-0", min_size=1, max_size=4)
SCALARS = st.one_of(st.integers(0, 9).map(str), st.text("ab=[]#.'", max_size=5).map(lambda text: f'"{text}"'))


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, SCALARS, max_size=4), max_size=4))
def test_every_key_is_placed_in_the_line_that_it_was_written_in(sections: dict[str, dict[str, str]]) -> None:
    lines, written = [], {}
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        written[section] = len(lines)
        for key, value in keys.items():
            lines.append(f"{key} = {value}")
            written[f"{section}.{key}"] = len(lines)
    assert {name: place.line for name, place in places("\n".join(lines)).items()} == written


def test_a_message_of_nothing_in_the_config_has_no_key() -> None:
    assert Problem.of("Java: none on PATH").key is None
    assert Problem.of("table 'sessions': is missing").key is None
    assert str(Problem("a.b", "is wrong", "x.toml", Place(3, 1).line)) == "x.toml:3: a.b: is wrong"


@pytest.mark.parametrize(
    "options",
    ['[source.options]\nkafka.sasl.jaas = "x password=hunter22"\n', '[source.options]\n"kafka.x" = ["hunter22"]\n'],
)
def test_the_value_of_an_option_is_not_shown(tmp_path: Path, options: str) -> None:
    (line,) = told(tmp_path, changed(("[event]", f"{options}[event]")))
    assert "hunter22" not in line
    assert "is no text, whole number, true or false; write one, and a name that has dots in quotes" in line


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("[]", "is an empty list; name a column, or several"),
        ("[5]", "5 is not a text; write the names of columns in quotes, as in ['tenant', 'user_id']"),
        ('["user", "User"]', "'user' is there twice, perhaps in upper and lower case; name it once"),
        ("5", "5 is not a text; write it in quotes, as in '5'"),
        (
            '["user", "user id"]',
            "'user id' can't name a column of the tables; rename it in the source to letters, digits and _, a letter first",
        ),
        (
            '["user", "Session_Start"]',
            "'Session_Start' is a column of the rows beside the key; call the other one differently, or rename it in the source",
        ),
    ],
)
def test_a_key_that_no_columns_make(tmp_path: Path, key: str, line: str) -> None:
    (found,) = told(tmp_path, changed(('key = "user"', f"key = {key}")))
    assert found.endswith(f"event.key: {line}")


def test_a_section_in_quotes(tmp_path: Path) -> None:
    (line,) = told(tmp_path, f'{CONFIG}\n["session.gap"]\n')
    assert "session.gap: is unknown" in line
    (line,) = told(tmp_path, changed((GAP, "gap = 00:30:00")))
    assert "session.gap: '00:30:00' is not a duration" in line


def test_a_file_that_begins_with_a_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_bytes(b"\xef\xbb\xbf" + CONFIG.encode())
    assert load_config(file).pipeline.name == "clicks"
