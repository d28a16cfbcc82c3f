"""An error of ours that a worker or a callback raised, told from the text of what Spark makes of it.

Python's exceptions don't cross the JVM: Spark keeps the traceback as text inside its own error's message.
"""

import re
from collections.abc import Iterator

from sessionlake.errors import SessionlakeError

_RAISED = re.compile(r"\b(sessionlake(?:\.\w+)+): (.+)")


def raised(text: str) -> SessionlakeError | None:
    """Return the first error of ours in a message, as an instance of its class; None where there is none.

    Where one caused another, that is the cause, as tracebacks put it first. Only a name that is a class of the tree below
    SessionlakeError counts. What else the instance held is lost: it is made of its message alone.
    """
    classes = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in _tree(SessionlakeError)}
    return next((classes[name](message) for name, message in _RAISED.findall(text) if name in classes), None)


def _tree(root: type[SessionlakeError]) -> Iterator[type[SessionlakeError]]:
    yield root
    for cls in root.__subclasses__():
        yield from _tree(cls)
