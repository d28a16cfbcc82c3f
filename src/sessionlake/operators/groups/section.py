"""The section [group] of a config."""

from dataclasses import replace
from typing import Any, ClassVar

from sessionlake.config.sections import Facts
from sessionlake.operators.shared.never_closes import NeverCloses


class GroupSection(NeverCloses):
    """Groups: one row a key, with the aggregates of all its events, however old they are."""

    RESERVED: ClassVar[frozenset[str]] = frozenset(("group_key", "changed_at", "group_part"))

    @property
    def facts(self) -> Facts:
        """Shards know the rows that they replace."""
        return replace(super().facts, knows_replaced=True)

    def in_words(self) -> str:
        """Return what is computed."""
        return "one row a key, over all its events"

    def check(self) -> None:
        """Refuse the setting of all operators that has no meaning here."""
        self.check_retention("group")

    def bound_settings(self) -> dict[str, Any]:
        """Return nothing: key and aggregates, which all operators have, say all."""
        return {}
