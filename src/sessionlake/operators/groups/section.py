"""The section [group] of a config."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from sessionlake.config.sections import OperatorSection
from sessionlake.errors import ConfigError

EVER_US = 1 << 59
"""Longer than all times from year 1 to 9999 lie apart; a watermark less it is still 64 bits."""


class GroupSection(OperatorSection):
    """Groups: one row a key, with the aggregates of all its events, however old they are."""

    RESERVED: ClassVar[frozenset[str]] = frozenset(("group_key", "changed_at", "group_part"))
    TIMED: ClassVar[bool] = False
    EXPIRES: ClassVar[bool] = False
    CLOSES: ClassVar[bool] = False

    @property
    def knows_replaced(self) -> bool:
        """Yes."""
        return True

    @property
    def grace_us(self) -> int:
        """For ever: no event is late."""
        return EVER_US

    @property
    def retention_us(self) -> int:
        """For ever."""
        return EVER_US

    @property
    def skew_us(self) -> int:
        """A minute: no group depends on the watermark."""
        return 0

    @property
    def least_unique_us(self) -> int:
        """None: nothing else depends on how late events are."""
        return 0

    @property
    def ends_inclusive(self) -> bool:
        """A row has one time."""
        return True

    @property
    def shown(self) -> Literal["all", "final", "marked"]:
        """All: no row is ever final."""
        return "all"

    @property
    def removes_open(self) -> bool:
        """Any row can be removed."""
        return True

    def closed_us(self, watermark_us: int | None) -> int | None:
        """Return None: any event may still come."""
        del watermark_us
        return None

    def final_sql(self, end: str, state: Mapping[str, Any]) -> str:
        """No row is final."""
        del end, state
        return "false"

    def in_words(self) -> str:
        """Return what is computed."""
        return "one row a key, over all its events"

    def check(self) -> None:
        """Refuse the setting of all operators that has no meaning here."""
        if "beyond_retention" in self.model_fields_set:
            raise ConfigError("group.beyond_retention: events of any age are taken in; remove it")

    def bound_settings(self) -> dict[str, Any]:
        """Return nothing: key and aggregates, which all operators have, say all."""
        return {}
