"""Rows of `correction_outcomes` and of `dead_letters` for corrections that a shard decides."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.engine.operator import Inputs, ShardResult
from sessionlake.stream.control import OUTCOMES
from sessionlake.stream.ingest import DEAD, DEAD_SCHEMA
from sessionlake.warehouse.schemas import APPLIED, STALE, TIME


def with_outcomes(
    result: ShardResult,
    inputs: Inputs,
    decided: Mapping[str, str],
    stale: frozenset[str],
    numbers: Mapping[str, int],
) -> ShardResult:
    """Return a shard's result with dead letters for its stale corrections, with outcomes and with numbers of the batch.

    `decided` maps kinds of rows to the corrections that they are of.
    """
    dead = [stale_letters(inputs[rows], kind, stale) for rows, kind in decided.items() if rows in inputs]
    side = {**result.side, DEAD: pa.concat_tables(dead)}
    if OUTCOMES in inputs:
        side[OUTCOMES] = outcomes_of(inputs[OUTCOMES], stale)
    return replace(result, side=side, stats={**result.stats, **numbers, "stale": len(stale)})


def stale_letters(removals: pa.Table, kind: str, stale: frozenset[str]) -> pa.Table:
    """Return dead letters of stale corrections of a kind."""
    rows = removals.filter(pc.is_in(removals["correction_id"], value_set=pa.array(sorted(stale), pa.string())))
    n = rows.num_rows
    arrays = [
        pa.repeat(STALE, n),
        pa.repeat(kind, n),
        combined(rows["key"]),
        combined(rows["start_us"]).cast(TIME),
        pa.nulls(n, pa.string()),
        combined(rows["correction_id"]),
    ]
    return pa.Table.from_arrays(arrays, schema=DEAD_SCHEMA)


def outcomes_of(decided: pa.Table, stale: frozenset[str]) -> pa.Table:
    """Return the outcomes of the corrections that a shard decided: applied, or stale."""
    is_stale = pc.is_in(decided["correction_id"], value_set=pa.array(sorted(stale), pa.string()))
    columns = {
        "outcome": pc.if_else(is_stale, STALE, APPLIED),
        "reason": pc.if_else(is_stale, STALE, pa.scalar(None, pa.string())),
    }
    return pa.Table.from_arrays([columns.get(n, decided[n]) for n in decided.column_names], schema=decided.schema)
