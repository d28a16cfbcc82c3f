"""How far a sink is that can't hold its own position: a file beside the pipeline's checkpoint."""

from dataclasses import dataclass

from sessionlake.warehouse.tables import Tables


@dataclass(frozen=True)
class Progress:
    """The progress of a sink. Each step is a new file, because not every file system can replace a file in one step."""

    tables: Tables
    folder: str

    def read(self) -> str | None:
        """Return what the last step has written; None before the first one."""
        steps = self._steps
        return self.tables.read_text(f"{self.folder}/{steps[-1]}") if steps else None

    def write(self, step: int, text: str) -> None:
        """Record a step, whose number is greater than those before."""
        done = self._steps
        self.tables.write_text_once(f"{self.folder}/{step}", text)
        for old in done:
            self.tables.delete(f"{self.folder}/{old}")

    @property
    def _steps(self) -> list[int]:
        return sorted(int(name) for name in self.tables.names(self.folder) if name.isdigit())
