"""Names that the config has to know next to the tables' schemas, whose module costs the import of pyarrow."""

import re

EVENTS = "events"
"""The table that is the archive."""
SOURCE_ROWS = "source_rows"
"""The table of whole rows, a part of the archive."""
EVENT_INPUT = "events"
"""The event input of pipelines that have one."""
DEAD_LETTER = "dead_letter"
"""The choice, for events that can't be taken as they are, of a row in dead_letters."""

IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""The form of users' classes and functions in a config: package.module:Name."""

RESERVED = frozenset(
    (
        "op",
        "event_count",
        "revision",
        "state",
        "batch_id",
        "commit_id",
        "has_state",
        "repeated",
        "too_near",
        "doubled",
    )
)
"""Column names that an aggregate can't have, in lower case: those of every operator's tables, and those that checks add."""


def column_of(name: str, column: str) -> str:
    """Return how a column of an input is called among a batch's rows: one of several inputs' has the input's name before it.

    >>> column_of(EVENT_INPUT, "user_id"), column_of("left", "user_id")
    ('user_id', 'left:user_id')
    """
    return column if name == EVENT_INPUT else f"{name}:{column}"
