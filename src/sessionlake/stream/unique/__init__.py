"""Each event once, for every operator (docs/rules.md, rules 220 to 228).

`once` puts the wrapper around an operator if its inputs ask for it.
"""

from collections.abc import Iterable
from typing import Any, cast

from sessionlake.engine.operator import Operator
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.unique.events import ID_HASH
from sessionlake.stream.unique.operator import DUPLICATES, ID_TIME, IDS, Unique

__all__ = ["DUPLICATES", "IDS", "ID_HASH", "ID_TIME", "Unique", "once", "remembered_us"]


def once(operator: Operator[Any], inputs: Iterable[str], secret: str = "") -> Operator[Any]:
    """Return the operator, or a wrapper that gives it each event once if one of the named inputs asks for it; for `secret` see `id_hashes`."""
    specs = {name: cast("EventOperator", operator).events(name) for name in inputs}
    asked = any(spec.unique_us is not None for spec in specs.values())
    return Unique(operator, specs, secret) if asked else operator


def remembered_us(operator: Operator[Any]) -> int | None:
    """Return how long identities are remembered, microseconds; None if none are."""
    return operator.remembered_us if isinstance(operator, Unique) else None
