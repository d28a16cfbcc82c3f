"""The steps of sinks, and how far a sink is that can't hold its own position: files beside the pipeline's checkpoint."""

from dataclasses import dataclass
from typing import Protocol

from sessionlake.errors import FencedError
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import newest_record, recorded


@dataclass(frozen=True)
class Step:
    """A step that was made."""

    batch_id: int
    """The batch whose rows the sink has now."""
    rows: int | None
    """How many rows are new or changed; None if all were loaded."""
    deleted: int = 0
    """How many rows are gone."""


class Stepped(Protocol):
    """A sink that goes forward in steps, each to a later batch."""

    @property
    def every(self) -> str:
        """The least time between two steps, as a config has it."""

    def step(self, *, anew: bool = False) -> Step | None:
        """Bring the sink to the last batch; None if it is there. With `anew` it gets all rows."""


_PLANNED = ".planned"


@dataclass(frozen=True)
class Progress:
    """The progress of a sink. Each step is a new file, because not every file system can replace a file in one step."""

    tables: Tables
    folder: str

    def read(self) -> str | None:
        """Return what the last step has written; None before the first one."""
        return newest_record(self.tables, self.folder)

    def write(self, step: int, text: str) -> None:
        """Record a step with a greater number than before; FencedError if another process has recorded this step differently, or a later step."""
        self.tables.write_text_once(f"{self.folder}/{step}", text)
        if max(self._steps("")) > step or self.tables.read_text(f"{self.folder}/{step}") != text:
            raise FencedError(
                f"publish: another process serves {self.folder!r} too; this one stops, keep only one running"
            )
        for suffix in ("", _PLANNED):
            for old in self._steps(suffix):
                if old < step or (suffix and old == step):
                    self.tables.delete(f"{self.folder}/{old}{suffix}")

    def plan(self, step: int, text: str) -> str:
        """Record a step's plan, and return it; if another process was faster, return that process's plan."""
        self.tables.write_text_once(f"{self.folder}/{step}{_PLANNED}", text)
        return self.planned(step) or text

    def planned(self, step: int) -> str | None:
        """Return the plan of a step; None if it was not begun."""
        return self.tables.read_text(f"{self.folder}/{step}{_PLANNED}")

    def unplan(self, step: int) -> None:
        """Give the plan of a step up."""
        self.tables.delete(f"{self.folder}/{step}{_PLANNED}")

    def _steps(self, suffix: str) -> list[int]:
        return recorded(self.tables, self.folder, suffix)
