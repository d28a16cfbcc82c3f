"""Settings of limits and of quarantine that don't go together: each is one line."""

from datetime import time
from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import ConfigError
from tests.support import make_config

LIMITS = {"gap": "10 seconds", "grace": "0 seconds", "retention": "1 hour"}
HOUR = {"max_gap": "1 hour"}
NEW_YEAR, LATER = "2026-01-01", "2026-02-01T00:00:00Z"


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
        ({"before": [{"until": "soon", "gap": "1 h"}]}, "session.before.0.until: 'soon' is no ISO date or time; write for example '2026-01-31'"),
        ({"before": [{"until": time(7, 32), "gap": "1 h"}]}, "session.before.0.until: '07:32:00' has no date; write for example 2026-01-31T12:00:00Z"),
        ({"before": [{"until": NEW_YEAR, "gap": "0 s"}]}, "session.before.0.gap: '0 s' must be longer than zero; write for example '30 minutes'"),
        ({"before": [{"until": NEW_YEAR, "gap": "2 h", "max_length": "1 h"}]}, "session.before.0.max_length: '1 h' is shorter than gap; write '2 hours' or longer"),
        ({"before": [{"until": LATER, "gap": "1 h"}, {"until": NEW_YEAR, "gap": "2 h"}]}, "session.before.1.until: 2026-01-01T00:00:00+00:00 is not after that of the one above; write the earliest first"),
        ({"gap_by": "v", **HOUR, "before": [{"until": NEW_YEAR, "gap": "1 h"}]}, "session.before: says which gap all events had, and gap_by gives each event its own; remove one of the two"),
        ({"before": {"until": NEW_YEAR, "gap": "1 h"}}, "session.before: is one section of a list; write its name in double brackets"),
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


def test_quarantine_by_a_length_that_earlier_sessions_can_have(tmp_path: Path) -> None:
    before = [{"until": NEW_YEAR, "gap": "10 minutes"}]
    session = {**LIMITS, "max_length": "1 h", "before": before}
    make_config(tmp_path, session=session, quarantine={"max_length": "2 h"})
    limited = [{**before[0], "max_length": "5 h"}]
    with pytest.raises(ConfigError, match=r"^quarantine\.max_length: '5h' is reached by no session"):
        make_config(tmp_path, session={**session, "before": limited}, quarantine={"max_length": "5 h"})


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


def test_what_is_kept_before_a_time_is_what_the_tables_have(tmp_path: Path) -> None:
    hour = 3_600_000_000
    bound = {"session.gap": 90 * 60_000_000, "session.max_length": 24 * hour, "session.max_length_offset": hour}
    kept = {"until": "1970-01-02T00:00:00Z", "gap": '"1 hour 30 minutes"'}
    own = make_config(tmp_path, session={**LIMITS, "gap_by": "v", **HOUR}).section
    section = make_config(tmp_path, session=LIMITS).section
    limits = {"max_length": '"1 day"', "max_length_offset": '"1 hour"'}
    assert section.kept_before(bound, 24 * hour) == {**kept, **limits}
    unlimited = {**bound, "session.max_length": None, "session.max_length_offset": None}
    assert section.kept_before(unlimited, 24 * hour) == kept
    assert own.kept_before(bound, 24 * hour) is None
    assert section.kept_before({**bound, "session.gap_by": "v"}, 24 * hour) is None
    assert section.kept_before({**bound, "session.before": [[hour, 1, None, 0]]}, 24 * hour) is None
