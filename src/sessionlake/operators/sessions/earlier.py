"""Gaps and limits of sessions by event time: those that held for earlier times, and what two configs have of them (docs/rules.md, rule 244)."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Protocol, Self

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.fields import Duration, Section
from sessionlake.config.times import Moment, format_time, parse_time
from sessionlake.errors import ConfigError

NEVER_US = 1 << 62
"""A time that is later than any other."""
Limits = tuple[int | None, int | None, int | None, int]
"""The end of a time, None of the last one, and the gap, the length of cells and their offset that hold until then; microseconds."""


class EarlierSection(Section):
    """The gap and the limit of sessions that held for events before a time."""

    until: Moment
    """The event time from which on they hold no more."""
    gap: Duration
    max_length: Duration | None = None
    max_length_offset: Duration = "0 seconds"

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """Return the section of limits that end."""
        return cls.model_validate({"until": format_time(limits[0] or 0), **as_keys(limits)})

    @property
    def until_us(self) -> int:
        """`until` in microseconds."""
        return parse_time(self.until)

    @property
    def bound(self) -> tuple[int, int, int | None, int]:
        """The time, the gap, the length and the offset of cells; microseconds."""
        length = None if self.max_length is None else parse_duration(self.max_length)
        return self.until_us, parse_duration(self.gap), length, parse_duration(self.max_length_offset)

    def check(self, at: str) -> None:
        """Refuse an empty gap, and limits that don't go together; `at` is the section's place."""
        _, gap_us, _, _ = self.bound
        if gap_us == 0:
            raise ConfigError(f"{at}.gap: {self.gap!r} must be longer than zero; write for example '30 minutes'")
        check_cells(at, self, (gap_us, "gap"))


def as_keys(limits: Limits) -> dict[str, str | None]:
    """Return the gap, the length of cells and their offset as the keys of a section."""
    _, gap_us, length_us, offset_us = limits
    return {
        "gap": f"{gap_us} us",
        "max_length": None if length_us is None else f"{length_us} us",
        "max_length_offset": f"{offset_us} us",
    }


def limits_over_time(bound: Mapping[str, Any], time_us: int | None) -> list[Limits]:
    """Return the gaps and limits by bound settings that hold up to a time, each with its end as far as that is known then."""
    now = (bound.get("session.gap"), bound.get("session.max_length"), bound.get("session.max_length_offset") or 0)
    every: list[Any] = [*(tuple(earlier) for earlier in bound.get("session.before") or ()), (None, *now)]
    ended = [*takewhile(lambda limits: None not in (limits[0], time_us) and limits[0] <= time_us, every)]
    return [*ended, (None, *every[len(ended)][1:])]


class Cells(Protocol):
    """A section with cells."""

    @property
    def max_length(self) -> str | None:
        """The length of cells; None if sessions are not cut."""

    @property
    def max_length_offset(self) -> str:
        """The start of the cells."""


def check_cells(at: str, section: Cells, widest: tuple[int, str]) -> None:
    """Refuse cells that are shorter than the widest gap, and offsets that say nothing; `at` is the section's place, `widest` the gap and its key."""
    offset_us = parse_duration(section.max_length_offset)
    if section.max_length is None:
        if offset_us:
            raise ConfigError(
                f"{at}.max_length_offset: {section.max_length_offset!r} is for max_length; write max_length, or remove it"
            )
        return
    if parse_duration(section.max_length) < widest[0]:
        raise ConfigError(
            f"{at}.max_length: {section.max_length!r} is shorter than {widest[1]}; write '{spoken_duration(widest[0])}' or longer"
        )
    if offset_us >= parse_duration(section.max_length):
        raise ConfigError(
            f"{at}.max_length_offset: {section.max_length_offset!r} must be shorter than max_length; write the remainder"
        )
