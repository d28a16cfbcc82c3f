"""Refusals of requests: a status, and one line that says what, which value, and what to do."""

import json
from collections.abc import Mapping

from sessionlake.errors import LakeError, NoBatchesError, SessionlakeError


class RefusedError(SessionlakeError):
    """A request that is not answered."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})

    @property
    def body(self) -> bytes:
        """The answer's JSON."""
        return error_body(str(self))


def error_body(message: str) -> bytes:
    """Return the JSON of an answer that reports an error."""
    return json.dumps({"error": " ".join(message.split())}, ensure_ascii=False).encode()


def refusal(error: Exception) -> RefusedError:
    """Return the refusal for an error that was raised while a request was answered."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, NoBatchesError | LakeError):
        return RefusedError(503, str(error), {"retry-after": "5"})
    if isinstance(error, SessionlakeError):
        return RefusedError(500, str(error))
    return RefusedError(500, f"server: failed by a {type(error).__name__}; its log has more")
