"""The section [emit] of operators on the axis of event time."""

from typing import Literal

from sessionlake.config.durations import parse_duration
from sessionlake.config.fields import Duration, Section
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.windowing.policies import BATCH, CLOSE, END, OFF, Policies
from sessionlake.operators.shared.windowing.policy import policy


class EmitSection(Section):
    """When windows and sessions are sent."""

    early: policy(OFF, BATCH) = OFF  # type: ignore[valid-type]
    """When changes of windows that are not full are sent: "off" (never), "batch" (with each batch), or a period of the clock, for example "1 minute"."""
    full: Literal["end", "close"] = "end"
    """When a window is sent as full: as the watermark passes its end, or as it closes."""
    late: policy(BATCH, CLOSE) = "10 seconds"  # type: ignore[valid-type]
    """When changes of full windows are sent: "batch", a period, for example "10 seconds", or "close" (as they close)."""
    tick_offset: Duration = "0 seconds"
    """Periods of the clock begin at the epoch + this offset."""

    @property
    def policies(self) -> Policies:
        """The policies, periods in microseconds."""
        early, late = (
            text if text in (OFF, BATCH, CLOSE) else parse_duration(text) for text in (self.early, self.late)
        )
        return Policies(early, self.full, late, parse_duration(self.tick_offset))

    def check(self, grace_key: str, one: str, *, graced: bool) -> None:
        """Refuse full = "close" if the config does not say when that is, or sends changes before; `one` is a result."""
        if self.full == CLOSE and not graced:
            raise ConfigError(f"{grace_key}: is missing; emit.full = 'close' sends a {one} when its grace is over")
        for name, chosen in (("early", self.early), ("late", self.late)):
            if self.full == CLOSE and chosen == BATCH:
                raise ConfigError(
                    f"emit.{name}: 'batch' does not go with full = 'close', which holds {one}s back; "
                    f"write full = '{END}', or another policy"
                )
