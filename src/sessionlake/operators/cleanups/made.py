"""The driver's half: what a section [ttl] says, made a schedule and a rule."""

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.config.durations import parse_duration
from sessionlake.config.ttl import RULES, ExpirySection
from sessionlake.errors import ConfigError
from sessionlake.operators.cleanups.brake import Brake
from sessionlake.operators.cleanups.rule import Rule, Since
from sessionlake.operators.cleanups.schedule import Schedule

if TYPE_CHECKING:
    from sessionlake.columnar.spark_sql import Parsed


_RULE = ("pattern", *RULES, "since", "clock", "key_format")


def schedule_of(section: ExpirySection, *, allowed: bool = False) -> Schedule:
    """Return when its cleanups are due, and what holds them back: nothing where they are `allowed` to remove all."""
    text = json.dumps([getattr(section, name, None) for name in _RULE])
    brake = None if section.max_share == 1 else Brake(1 if allowed else section.max_share, zlib.crc32(text.encode()))
    return Schedule(section.clock, parse_duration(section.every), brake, allowed=allowed)


def parsed_rule(section: ExpirySection) -> "Parsed | None":
    """Return the rule that is SQL, None where none is; ConfigError for what is no such SQL."""
    name = "where" if section.expires_at is None else "expires_at"
    text = section.where if section.expires_at is None else section.expires_at
    if text is None:
        return None
    from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

    return parse(f"ttl.{name}", text)


def rule_of(section: ExpirySection, types: Mapping[str, pa.DataType], since: Since = "event") -> Rule:
    """Return the rule over rows of which SQL sees these columns; ConfigError where SQL does not fit them."""
    parsed = parsed_rule(section)
    if parsed is None:
        return Rule(ttl_us=parse_duration(section.ttl or ""), since=since)
    if section.expires_at is None:
        return Rule(where=parsed.typed(types, "boolean"))
    expires_at = parsed.typed(types, "timestamp")
    if expires_at.uses_clock:
        raise ConfigError(
            f"ttl.expires_at: {parsed.text!r} reads the clock, and a row must expire at one time; write a condition, `where`"
        )
    return Rule(expires_at=expires_at)
