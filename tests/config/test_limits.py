"""Settings of limits and of quarantine that don't go together: each is one line."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import ConfigError
from tests.support import make_config

LIMITS = {"gap": "10 seconds", "grace": "0 seconds", "retention": "1 hour"}
HOUR = {"max_gap": "1 hour"}


@pytest.mark.parametrize(
    ("session", "told"),
    [
        ({"gap_by": "v"}, "session.max_gap: is missing; gap_by needs it, write the largest gap it may give"),
        (HOUR, "session.max_gap: '1 hour' is for gap_by; write gap_by, or remove it"),
        ({"gap_by": "v", "max_gap": "9 s"}, "session.max_gap: '9 s' is shorter than the gap; write '10 seconds' or longer"),
        ({"gap_by": "v", "max_gap": "2 h"}, "session.retention: '1 hour' is shorter than max_gap + grace = 2 hours; write '2 hours' or longer"),
        ({"max_length": "9 s"}, "session.max_length: '9 s' is shorter than gap; write '10 seconds' or longer"),
        ({"gap_by": "v", **HOUR, "max_length": "59 min"}, "session.max_length: '59 min' is shorter than max_gap; write '1 hour' or longer"),
        ({"max_length_offset": "1 h"}, "session.max_length_offset: '1 h' is for max_length; write max_length, or remove it"),
        ({"max_length": "1 h", "max_length_offset": "1 h"}, "session.max_length_offset: '1 h' must be shorter than max_length; write the remainder"),
    ],
)  # fmt: skip
def test_limits_that_do_not_go_together(tmp_path: Path, session: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_config(tmp_path, session={**LIMITS, **session})
    assert str(raised.value) == told


@pytest.mark.parametrize(
    ("quarantine", "told"),
    [
        ({}, "quarantine: has no threshold; write max_events, max_rate or max_length"),
        ({"max_rate": "600"}, "quarantine.max_rate: '600' is no rate; write for example '600 per minute'"),
        ({"max_rate": "0 per hour"}, "quarantine.max_rate: '0 per hour' is no rate; write for example '600 per minute'"),
        ({"max_length": "2 h"}, "quarantine.max_length: '2h' is reached by no session, since session.max_length is '2h'; write a shorter one"),
    ],
)  # fmt: skip
def test_quarantine_that_can_not_be(tmp_path: Path, quarantine: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_config(tmp_path, session={**LIMITS, "max_length": "2 h"}, quarantine=quarantine)
    assert str(raised.value) == told


@pytest.mark.parametrize("name", ["rule", "events_per_minute", "open_until"])
def test_columns_of_limits_can_not_name_an_aggregate_beside_them(tmp_path: Path, name: str) -> None:
    make_config(tmp_path, session=LIMITS, aggregates={name: "sum(v)"})
    with pytest.raises(ConfigError, match=f"^aggregates.{name}: '{name}' can't name a column;"):
        make_config(
            tmp_path,
            session={**LIMITS, "gap_by": "v * interval 1 second", **HOUR},
            quarantine={"max_events": 1},
            aggregates={name: "sum(v)"},
        )


def test_limits_are_rebuild_settings_and_thresholds_are_live(tmp_path: Path) -> None:
    plain = make_config(tmp_path, session=LIMITS)
    limited = make_config(
        tmp_path,
        session={**LIMITS, "max_length": "2 h", "max_length_offset": "1 h"},
        quarantine={"max_events": 5, "max_rate": "10 per second"},
    )
    changed = {k for k, v in limited.rebuild_settings().items() if plain.rebuild_settings()[k] != v}
    assert changed == {"session.max_length", "session.max_length_offset"}
    assert limited.live_settings()["quarantine"] == {
        "max_events": 5,
        "max_rate": [10, 1_000_000],
        "max_length_us": None,
    }
    assert "quarantine" not in plain.live_settings()
