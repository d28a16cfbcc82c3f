"""What harnesses of windows give."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WindowOutput:
    """What one micro-batch gave."""

    changes: list[dict[str, Any]]
    """The rows of window_changelog, but for state and marks; times in microseconds."""
    late: list[dict[str, Any]]
    """The input rows whose windows were all closed; none by count."""
    partly_late: list[dict[str, Any]]
    """The input rows of whose windows some were closed; they are in the others."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    counts: dict[str, int]
