"""The section of an operator that takes events of any age, and whose rows are never final."""

from collections.abc import Mapping
from typing import Any, ClassVar

from sessionlake.config.sections import Facts, OperatorSection
from sessionlake.errors import ConfigError

EVER_US = 1 << 59
"""Longer than all times from year 1 to 9999 lie apart; a watermark less it is still 64 bits."""


class NeverCloses(OperatorSection):
    """See `OperatorSection` for the properties and methods."""

    TIMED: ClassVar[bool] = False

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
        """A minute: no row depends on the watermark."""
        return 0

    @property
    def least_unique_us(self) -> int:
        """None: nothing else depends on how late events are."""
        return 0

    @property
    def facts(self) -> Facts:
        """A row has one time, is never final, and can always be removed."""
        return Facts(shown="all", ends_inclusive=True, closes=False, expires=False, removes_open=True)

    def closed_us(self, watermark_us: int | None) -> int | None:
        """Return None: any event may still come."""
        del watermark_us
        return None

    def final_sql(self, end: str, state: Mapping[str, Any]) -> str:
        """No row is final."""
        del end, state
        return "false"

    def check_retention(self, section: str) -> None:
        """Refuse the setting of all operators that has no meaning here."""
        if "beyond_retention" in self.model_fields_set:
            raise ConfigError(f"{section}.beyond_retention: events of any age are taken in; remove it")
