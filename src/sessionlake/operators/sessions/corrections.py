"""Replacements (docs/rules.md, rule 2): all or nothing, on the state before the batch; a tombstone is one that puts nothing."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints

REMOVE_SCHEMA = pa.schema(
    [("correction_id", pa.string()), ("key", pa.string()), ("start_us", pa.int64()), ("revision", pa.int64())]
)
"""One row for each session that a replacement names."""


@dataclass(frozen=True)
class Removals:
    """Sessions that replacements name, a row each, in columns of equal length."""

    correction: list[str]
    """The correction_id of the replacement; all rows of one form a whole."""
    codes: Ints
    """The session's key, as a number among the batch's keys."""
    start: Ints
    """The session's start, microseconds."""
    revision: Ints
    """The revision that the writer of the correction had seen."""


@dataclass(frozen=True)
class Decision:
    """The outcomes of the replacements."""

    removed: Bools
    """Per stored session: it goes."""
    stale: frozenset[str]
    """Corrections that name a session which is gone or at another revision; ignored whole."""
    applied: frozenset[str]
    """All the others, also those that remove nothing and only put."""


def decide(removals: Removals, put_only: set[str], codes: Ints, start: Ints, revision: Ints) -> Decision:
    """Decide each replacement in order of its correction_id; if two name one session, the earlier has it.

    `codes`, `start` and `revision` describe the stored sessions; `put_only` are corrections that remove nothing.
    Ids decide, not rows' order: rows come in any order, and a rerun must decide alike. Corrections are control rows, so a
    loop over them is no loop over events.
    """
    wanted = {(int(c), int(s)) for c, s in zip(removals.codes, removals.start, strict=True)}
    among = np.flatnonzero(np.isin(codes, removals.codes))
    stored = {(int(codes[i]), int(start[i])): int(i) for i in among if (int(codes[i]), int(start[i])) in wanted}
    named: dict[str, list[tuple[int, int, int]]] = {}
    for correction, code, at, seen in zip(
        removals.correction, removals.codes, removals.start, removals.revision, strict=True
    ):
        named.setdefault(correction, []).append((int(code), int(at), int(seen)))
    removed = np.zeros(len(codes), bool)
    stale: set[str] = set()
    for correction in sorted(named):
        rows = [stored.get((code, at)) for code, at, _ in named[correction]]
        fits = all(
            row is not None and not removed[row] and revision[row] == seen
            for row, (_, _, seen) in zip(rows, named[correction], strict=True)
        )
        # A stale replacement does not claim the session that it names: the next one may still replace it.
        if fits:
            removed[[row for row in rows if row is not None]] = True
        else:
            stale.add(correction)
    return Decision(removed, frozenset(stale), frozenset((set(named) | put_only) - stale))
