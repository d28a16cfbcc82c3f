"""The driver's half: a section [ttl] becomes a schedule and a rule."""

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.cleanups.brake import Brake
from sessionlake.operators.shared.cleanups.rule import Rule, Since
from sessionlake.operators.shared.cleanups.schedule import Schedule
from sessionlake.operators.shared.cleanups.section import RULES, CleanedSection, ExpirySection

if TYPE_CHECKING:
    from sessionlake.columnar.spark_sql import Parsed


_RULE = ("pattern", *RULES, "since", "clock", "key_format")
_NO_MORE: Mapping[str, object] = {}


def schedule_of(section: CleanedSection, *, allowed: bool = False, more: Mapping[str, object] = _NO_MORE) -> Schedule:
    """Return the schedule of a section's cleanups, with their brake. If they are `allowed`, they may remove any share.

    `more` has settings of the rule that the section does not have as keys.
    """
    text = json.dumps([getattr(section, name, more.get(name)) for name in _RULE])
    brake = None if section.max_share == 1 else Brake(1 if allowed else section.max_share, zlib.crc32(text.encode()))
    return Schedule(section.clock, parse_duration(section.every), brake, allowed=allowed)


def parsed_rule(section: ExpirySection) -> "Parsed | None":
    """Return the parsed SQL of the rule, None if the rule has no SQL; ConfigError for invalid SQL."""
    name, text = _sql(section)
    if text is None:
        return None
    from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

    return parse(f"ttl.{name}", text)


def rule_of(section: ExpirySection, types: Mapping[str, pa.DataType], since: Since = "event") -> Rule:
    """Return the rule over rows whose columns in SQL have these types; ConfigError if SQL does not fit them."""
    parsed = parsed_rule(section)
    if parsed is None:
        return Rule(ttl_us=parse_duration(getattr(section, "ttl", None) or ""), since=since)
    if _sql(section)[0] == "where":
        return Rule(where=parsed.typed(types, "boolean"))
    expires_at = parsed.typed(types, "timestamp")
    if expires_at.uses_clock:
        raise ConfigError(
            f"ttl.expires_at: {parsed.text!r} reads the clock, and a row must expire at one time; write a condition, `where`"
        )
    return Rule(expires_at=expires_at)


def _sql(section: ExpirySection) -> tuple[str, str | None]:
    """Return the key of [ttl] that holds SQL, and the SQL; None if there is none."""
    expires_at: str | None = getattr(section, "expires_at", None)
    return ("where", getattr(section, "where", None)) if expires_at is None else ("expires_at", expires_at)
