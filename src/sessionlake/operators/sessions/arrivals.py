"""A shard's rows of a batch brought together: all new partials and removals, with codes of their keys."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import Partials, concat, lift
from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.records import UNTIL
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import Inputs
from sessionlake.operators.sessions.control import PUT as PUT_ROWS
from sessionlake.operators.sessions.control import REMOVE, RESTATE
from sessionlake.operators.sessions.corrections import REMOVE_SCHEMA, Removals
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.mapper import ALONE, MERGED
from sessionlake.operators.sessions.rules import EVENT, PUT, RESTATED, Arrivals
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.store.lists import NONE_LISTED, Listed
from sessionlake.stream.ingest import events_of


@dataclass(frozen=True)
class Parts:
    """The batch's rows of a shard, with codes of ascending distinct keys."""

    keys: pa.Array
    arrivals: Arrivals
    removals: Removals
    alone: pa.Table | None
    alone_from: int
    """The place among the arrivals at which the single, unmerged events begin."""
    due: Ints
    """The codes of the keys that the store's lists named."""
    due_until: Ints
    """For each of them the time until which its listed session was open."""


def bring_together(spec: SessionizerSpec, inputs: Inputs, due: Listed | None = None) -> Parts | None:
    """Bring all arrivals together, and the keys of `due` sessions; None if the shard has neither arrivals nor removals nor lists."""
    pieces: list[tuple[Partials, int, list[str | None]]] = []
    if MERGED in inputs:
        pieces.append((Partials.from_table(inputs[MERGED]), EVENT, []))
    for kind, name in ((RESTATED, RESTATE), (PUT, PUT_ROWS)):
        if name in inputs:
            table = inputs[name]
            ids = table["correction_id"].to_pylist() if kind == PUT else []
            pieces.append((Partials.from_table(table.drop_columns(["correction_id"])), kind, ids))
    alone = inputs.get(ALONE)
    alone_from = sum(len(p) for p, _, _ in pieces)
    if alone is not None:
        until = alone[UNTIL].to_numpy() if spec.windows.keeps_until else None
        pieces.append((lift(spec.aggregates, events_of(spec.events, alone), until), EVENT, []))
    remove = inputs.get(REMOVE, REMOVE_SCHEMA.empty_table())
    if not pieces and not remove.num_rows and due is None:
        return None
    due = due or NONE_LISTED
    partials = concat([p for p, _, _ in pieces]) if pieces else Partials.empty(spec.aggregates)
    keys = pa.chunked_array([partials.keys, *remove["key"].chunks, due.keys], pa.string()).combine_chunks()
    codes, distinct = sorted_codes(keys)
    kinds = np.concatenate([np.full(len(p), k) for p, k, _ in pieces]) if pieces else np.zeros(0, np.int64)
    correction: list[str | None] = []
    if any(k == PUT for _, k, _ in pieces):
        correction = [c for p, k, ids in pieces for c in (ids if k == PUT else [None] * len(p))]
    n, named = len(partials), len(partials) + len(remove)
    arrivals = Arrivals(
        codes[:n],
        partials.start,
        partials.end,
        partials.count,
        partials.states,
        until_of(spec.windows, partials),
        kinds,
        correction,
        lambda: distinct,
    )
    removals = Removals(
        remove["correction_id"].to_pylist(),
        codes[n:named],
        remove["start_us"].to_numpy(),
        remove["revision"].to_numpy(),
    )
    return Parts(distinct, arrivals, removals, alone, alone_from, codes[named:], due.start)


def earliest_ends(spec: SessionizerSpec, parts: Parts) -> Ints:
    """Return for each key the earliest end that a session to be found may have."""
    earliest = np.full(len(parts.keys), np.iinfo(np.int64).max)
    np.minimum.at(earliest, parts.arrivals.codes, parts.arrivals.start)
    np.minimum.at(earliest, parts.removals.codes, parts.removals.start)
    np.minimum.at(earliest, parts.due, parts.due_until)
    return earliest - spec.windows.widest_us
