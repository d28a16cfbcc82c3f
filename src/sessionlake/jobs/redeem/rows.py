"""The texts of dead letters, read and checked again as the rows that they were."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import lift
from sessionlake.columnar.arrays import Ints, combined
from sessionlake.config.layouts import Layout
from sessionlake.errors import JobError
from sessionlake.jobs.redeem.ledger import LETTER
from sessionlake.sources.contract import Checked, check
from sessionlake.sources.decoding.again import file_again, layout_again
from sessionlake.sources.decoding.exploding import ExplodingDecoder
from sessionlake.sources.decoding.files import FileDecoder, decode
from sessionlake.sources.decoding.rows import Rows, no_text
from sessionlake.sources.lookups.lookup import Pins
from sessionlake.stream.capabilities import Redeeming
from sessionlake.stream.ingest import checked_events, event_struct, without_raising
from sessionlake.warehouse.schemas import TIME

TAKEN, TWIN, UNREADABLE, REFUSED, EXPIRED = "redeemed", "duplicates", "unreadable", "refused", "beyond_retention"
FILTERED = "filtered"
"""The outcomes of a dead letter. The first two are marked, and such letters are not looked at again."""


def judged_schema(spec: Redeeming) -> pa.Schema:
    """Return the schema of the rows that `judge` returns."""
    event = event_struct(spec.events, [pa.nulls(0, spec.columns.types[name]) for name in spec.columns.inputs], 0).type
    return pa.schema(
        [
            (LETTER, pa.string()),
            ("batch_id", pa.int64()),
            ("outcome", pa.string()),
            ("key", pa.string()),
            ("event_time", TIME),
            ("event_id", pa.string()),
            ("event", event),
        ]
    )


def judge_letters(spec: Redeeming, letters: pa.RecordBatch, expired_us: int, latest_us: int, pins: Pins) -> pa.Table:
    """Decode the texts as rows of the source and check each; `letters` has letter, batch_id and raw, `pins` what is looked up."""
    table, decoder = pa.Table.from_batches([letters]), spec.events.decoder
    exploding = decoder if isinstance(decoder, ExplodingDecoder) else None
    decoder = decoder if exploding is None else exploding.source
    layout = layout_again(Layout.of(decoder.layout) if isinstance(decoder, FileDecoder) else None)
    if layout is None:
        raise JobError("source.format: a dead letter of 'csv' lacks the header")
    readable, content = file_again(letters["raw"].to_pylist(), layout)
    lost = table.take(pa.array(np.setdiff1d(np.arange(table.num_rows), readable)))
    parts = [_rows(spec, lost, pa.array([UNREADABLE] * lost.num_rows, pa.string()))]
    at = 0
    read = spec.columns.read if exploding is None else exploding.exploding.of_rows(spec.columns.read, numbered=True)
    for found in decode(content, "dead_letters", layout, read):
        rows, places = Rows(found.table, found.error, found.raw, no_text), np.arange(len(found.table))
        begin, at = at, at + len(places)
        if exploding is not None:
            rows, places = _single(exploding, rows)
            unread = np.setdiff1d(np.arange(len(found.table)), places)
            lost = table.take(pa.array([readable[begin + place] for place in unread], pa.int64()))
            parts.append(_rows(spec, lost, pa.array([UNREADABLE] * lost.num_rows, pa.string())))
        decoded, _ = spec.events.lookups.added(rows, pins)
        of = pa.array([readable[begin + place] for place in places], pa.int64())
        shape = spec.events.shape
        own = shape.with_own(decoded.table)
        checked = check(own, decoded.error, spec.columns, spec.events.max_key_bytes)
        outcome = np.full(len(of), TAKEN, object)
        outcome[checked.time_us < expired_us] = EXPIRED
        outcome[checked.time_us > latest_us] = REFUSED
        if checked.reason is not None:
            outcome[checked.reason.is_valid().to_numpy(zero_copy_only=False)] = REFUSED
        outcome[~shape.kept(decoded.table, decoded.error)] = FILTERED
        outcome[_raising(spec, decoded.table, checked, np.flatnonzero(outcome == TAKEN))] = REFUSED
        outcome[_refused(spec, decoded.table, checked, np.flatnonzero(outcome == TAKEN))] = REFUSED
        columns = [combined(decoded.table[name]) for name in spec.columns.inputs]
        time = pa.array(checked.time_us, mask=checked.no_time).cast(TIME)
        parts.append(
            _rows(
                spec, table.take(of), pa.array(outcome, pa.string()), checked.key, time, checked.event_id,
                event_struct(spec.events, columns, len(of)),
            )
        )  # fmt: skip
    if at != len(readable):
        raise JobError(f"dead_letters: {len(readable)} texts were read as {at} rows; report this with the texts")
    return pa.concat_tables(parts)


def _single(decoder: ExplodingDecoder, rows: Rows) -> tuple[Rows, Ints]:
    """Return the events of texts that have one, and the places of these texts: a letter of several elements is of no event."""
    found = [*decoder.exploding.events(rows, decoder.columns)]
    table = pa.concat_tables([events.table for events, _ in found])
    errors = [
        pa.nulls(len(of), pa.string()) if events.error is None else combined(events.error) for events, of in found
    ]
    places = np.concatenate([of for _, of in found])
    alone = np.bincount(places, minlength=rows.table.num_rows)[places] == 1
    error = pa.concat_arrays(errors).filter(pa.array(alone))
    return Rows(table.filter(pa.array(alone)), error, no_text, no_text), places[alone]


def _raising(spec: Redeeming, table: pa.Table, checked: Checked, at: Ints) -> Ints:
    """Return the rows at which a user's aggregate raises."""
    _, kept = without_raising(lambda at: lift(spec.aggregates, checked_events(spec.events, table, checked, at)), at, [])
    return np.setdiff1d(at, kept)


def _refused(spec: Redeeming, table: pa.Table, checked: Checked, at: Ints) -> Ints:
    """Return the rows that the operator refuses."""
    if spec.refuses is None:
        return at[:0]
    return at[spec.refuses(checked_events(spec.events, table, checked, at))]


def _rows(spec: Redeeming, letters: pa.Table, outcome: pa.Array, *event: pa.Array | None) -> pa.Table:
    schema = judged_schema(spec)
    arrays = [combined(letters[LETTER]), combined(letters["batch_id"]), outcome, *event]
    arrays += [None] * (len(schema) - len(arrays))
    nulls = [pa.nulls(letters.num_rows, f.type) if a is None else a for a, f in zip(arrays, schema, strict=True)]
    return pa.Table.from_arrays([combined(a).cast(f.type) for a, f in zip(nulls, schema, strict=True)], schema=schema)
