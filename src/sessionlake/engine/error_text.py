"""Find an error of this package, raised by a worker or a callback, in the text of Spark's error.

Python's exceptions don't cross the JVM: Spark keeps the traceback as text inside its own error's message.
"""

import re
from collections.abc import Iterator

from sessionlake.errors import SessionlakeError

_RAISED = re.compile(r"\b(sessionlake(?:\.\w+)+): (.+)")


def error_in(text: str) -> SessionlakeError | None:
    """Return the first error of this package in a message, as an instance of its class; None if there is none.

    If one error caused another, the result is the cause, because a traceback names it first. Only subclasses of
    SessionlakeError count. The instance has the message, but no other attributes of the original.

    >>> error_in("Job aborted: sessionlake.errors.StoreError: store: 'a' is damaged")
    StoreError("store: 'a' is damaged")
    >>> error_in("Job aborted: ValueError: 1") is None
    True
    """
    classes = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in _tree(SessionlakeError)}
    return next((classes[name](message) for name, message in _RAISED.findall(text) if name in classes), None)


def _tree(root: type[SessionlakeError]) -> Iterator[type[SessionlakeError]]:
    yield root
    for cls in root.__subclasses__():
        yield from _tree(cls)
