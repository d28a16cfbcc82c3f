"""When outputs are sent, in the words of the section [emit] of a config."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Emit:
    """When outputs are sent. An argument that is None has the default of a config.

    `early`: of windows "off" (the default), "batch" or a period, as in "1 minute"; of joins "batch" (the default) or a period, or
    "off" with `full`. `full`: of windows by time "end" (the default) or "close"; of tumbling and hopping joins by time either, or
    none (the default). `late`: of windows by time a period ("10 seconds" is the default),
    "batch" or "close"; of joins "batch" (the default) or a period. A call of add_message or add_messages is a batch. `tick_offset`:
    periods begin at the epoch + this offset.

    >>> Emit(early="1 minute").content
    {'early': '1 minute', 'tick_offset': '0 seconds'}
    """

    early: str | None = None
    full: str | None = None
    late: str | None = None
    tick_offset: str = "0 seconds"

    @property
    def content(self) -> dict[str, Any]:
        """The section [emit]."""
        return {name: value for name, value in asdict(self).items() if value is not None}
