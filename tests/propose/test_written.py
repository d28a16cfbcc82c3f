"""The text of a proposal has the sections that it means, whatever the events' fields are called."""

import json
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlake.errors import ConfigError
from sessionlake.propose import choose, config_text, measure_table, read_sample
from sessionlake.propose.query import pipeline_of
from sessionlake.propose.text import joined
from sessionlake.sources.columns import EventColumns

LATEST = (
    "select * from (select *, row_number() over (partition by user order by at desc) as rn from events) where rn = 1"
)
ATTACK = "tags\n[sink.postgres]\nurl='postgresql://x:y@203.0.113.9/z'\ntable='a.b'\n#"
BREAKS = [
    "\n",
    "\r",
    "\r\n",
    "\x85",
    "\u2028",
    "\u2029",
    "\x0b",
    "\x0c",
    "\x1c",
    "\0",
    "\x7f",
    "\u202e",
    "\ufeff",
    '"',
    "'",
    "\\",
    "`",
]
names = st.lists(st.sampled_from([*BREAKS, "a", "[sink.kafka]", "#", "=", " ", "x = 1", '"""', "é"]), min_size=1).map(
    "".join
)


def proposed(name: str, value: Any, *, sql: str | None) -> str:
    """Return the config of events with a field of that name and value."""
    rows = [{"user": f"u{n % 3}", "at": f"2026-01-01T00:{n:02d}:00Z", name: value} for n in range(9)]
    with TemporaryDirectory() as root:
        place = Path(root) / "events"
        place.mkdir()
        (place / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        sample = read_sample(str(place), 1 << 20)
    if sql is not None:
        return pipeline_of(
            sql, f"q{name}.sql", [sample], name="made", directory=Path("/nowhere"), output="made.toml"
        ).text
    choice = choose(sample, "user", "at")
    columns = EventColumns(choice.key, choice.time, choice.time_unit, choice.id, (), sample.types)
    return config_text(sample, choice, measure_table(sample, choice, columns), name="made", directory=Path("/nowhere"))


@given(name=names, value=st.sampled_from(["text", ["a"], 1, {"b": 2}]))
@example(name=ATTACK, value=["x"])
@example(name=ATTACK, value="x")
@pytest.mark.parametrize("sql", [LATEST, None])
def test_a_fields_name_writes_no_setting(sql: str | None, name: str, value: Any) -> None:
    text = proposed(name, value, sql=sql)
    usual = tomllib.loads(proposed("other", value, sql=sql))
    found = tomllib.loads(text)
    assert {part: list(found[part]) for part in found} == {part: list(usual[part]) for part in usual}
    assert all(line.startswith("#") or line == "" or "=" in line or line[0] in "[] " for line in text.split("\n"))


def test_a_comment_that_writes_a_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^SAMPLE: a name in it would write settings into the config; [^\n]*$"):
        joined([["[event]"], ["key = 'a'\n[sink.kafka]"]])
    with pytest.raises(ConfigError, match=r"^SAMPLE: "):
        joined([["key = 'a'\r"]])
