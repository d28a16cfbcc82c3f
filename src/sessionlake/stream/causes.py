"""Why rows are dead letters, without the rows' values: for the lines of a run, which more people read than may read rows."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import Counted, StateStat
from sessionlake.sources.decoding.decoded import WRONG_TYPE

CAUSE = StateStat("cause")
"""The numbers of rows that are refused, by cause. Commits have no such numbers: the table of dead letters has each row's reason."""
_WRONG = rf"(?s)^{WRONG_TYPE}(.+?) = .* is not (?:an? )?([a-z0-9_]+(?:\([0-9, ]+\))?)$"
_AFTER_COLON = r"(?s)^(.*?): .*$"


def causes_of(reasons: pa.Array) -> pa.Array:
    """Return the cause of each reason of a dead letter: the same text for rows that are refused for the same fault.

    >>> reasons = ["unparsable time: 'click'", "wrong type: v = 'x' is not a double", "null key"]
    >>> causes_of(pa.array(reasons)).to_pylist()
    ['unparsable time', 'wrong type: v is not a double', 'null key']
    """
    typed = pc.replace_substring_regex(reasons, _WRONG, rf"{WRONG_TYPE}\1 is not a \2")
    others = pc.replace_substring_regex(reasons, _AFTER_COLON, r"\1")
    return pc.if_else(pc.equal(typed, reasons), others, typed)


def counted_causes(reasons: Sequence[pa.Array]) -> Counted:
    """Return the numbers of rows by cause, of the reasons of dead letters."""
    found = pc.value_counts(causes_of(pa.chunked_array(reasons, pa.string()).combine_chunks()))
    return Counted(
        {CAUSE.of(cause): count for cause, count in zip(*map(pa.Array.to_pylist, found.flatten()), strict=True)}
    )


def by_cause(stats: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of refused rows by cause, from a batch's numbers."""
    return ordered(dict(CAUSE.parts(stats)))


def ordered(causes: Mapping[str, int]) -> dict[str, int]:
    """Return numbers by cause, the greatest first."""
    return dict(sorted(causes.items(), key=lambda pair: (-pair[1], pair[0])))


def dead_note(rows: int, dead: int, causes: Mapping[str, int], of: str) -> str | None:
    """Return a line about rows that mostly are dead letters, with the commonest cause; None if most are not.

    >>> dead_note(1000, 998, {"unparsable time": 990, "null key": 8}, "this batch's")
    "998 of this batch's 1,000 rows are dead letters, 990 of them: unparsable time; dead_letters has each row with its reason"
    """
    if 2 * dead <= rows:
        return None
    most = next((f", {count:,} of them: {cause}" for cause, count in causes.items()), "")
    return f"{dead:,} of {of} {rows:,} rows are dead letters{most}; dead_letters has each row with its reason"


def notes_of(stats: Mapping[str, int]) -> list[str]:
    """Return this line about a batch, by its numbers."""
    note = dead_note(stats.get("input", 0), stats.get("dead", 0), by_cause(stats), "this batch's")
    return [] if note is None else [note]
