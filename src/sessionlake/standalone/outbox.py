"""The outbox: outputs are kept for the caller to fetch, or offered to a downstream function until it has taken them."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Downstream = Callable[[dict[str, Any]], Any]
"""Takes an output. It returns None or a true value if it has taken it, and a false one if not. `error(message, reason)` and
`late(message)`, if it has them, take refused and late messages."""
_OUTPUT, _LATE, _DEAD = "output", "late", "error"
_log = logging.getLogger("sessionlake.standalone")


class Outbox:
    """Outputs, late and refused messages, in the order in which they came."""

    def __init__(self, downstream: Downstream | None) -> None:
        self._downstream = downstream
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._warned = False
        self.outputs: list[dict[str, Any]] = []
        """The outputs, if there is no downstream."""
        self.late: list[dict[str, Any]] = []
        """Late messages nobody took."""
        self.dead: list[dict[str, Any]] = []
        """Refused messages nobody took: `message` and `reason`."""

    @property
    def is_automatic(self) -> bool:
        """Whether outputs are offered."""
        return self._downstream is not None

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be offered again."""
        return bool(self._waiting)

    def put(self, outputs: Sequence[dict[str, Any]], late: Sequence[Row], dead: Sequence[Row]) -> None:
        """Add the outputs of a batch."""
        if self._downstream is None:
            self.outputs += outputs
            self.late += map(dict, late)
            self.dead += map(dict, dead)
            return
        self._waiting += [(_LATE, dict(row)) for row in late]
        self._waiting += [(_DEAD, dict(row)) for row in dead]
        self._waiting += [(_OUTPUT, row) for row in outputs]

    def deliver(self) -> bool:
        """Offer the waiting outputs, in order; return whether all were taken. A refusal is logged once until then."""
        while self._waiting:
            kind, row = self._waiting[0]
            if not self._is_taken(kind, row):
                if not self._warned:
                    _log.warning("downstream takes no outputs: %d wait, and no message is taken", len(self._waiting))
                self._warned = True
                return False
            self._waiting.popleft()
        self._warned = False
        return True

    def waiting_outputs(self) -> list[dict[str, Any]]:
        """Return copies of the outputs nobody has yet."""
        return [dict(row) for row in self.outputs] + [dict(row) for kind, row in self._waiting if kind == _OUTPUT]

    def clear(self) -> None:
        """Drop the outputs that the caller may have fetched."""
        self.outputs, self.late, self.dead = [], [], []

    def _is_taken(self, kind: str, row: dict[str, Any]) -> bool:
        assert self._downstream is not None  # noqa: S101 (else nothing waits)
        if kind == _OUTPUT:
            answer = self._downstream(dict(row))
            return answer is None or bool(answer)
        handler = getattr(self._downstream, kind, None)
        if kind == _LATE:
            self.late.append(row) if handler is None else handler(row)
        elif handler is None:
            if not self.dead:
                _log.warning("a message was refused (%s); dead() has it, and flush() forgets it", row["reason"])
            self.dead.append(row)
        else:
            handler(row["message"], row["reason"])
        return True
