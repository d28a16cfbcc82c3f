"""Events on their way to the shard that knows duplicates: which go, as which columns, and the hash of an event's identity.

The identity is input, key and id. Its time is next to its hash, in stores and in tables.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, is_among, plain_text
from sessionlake.columnar.identity import record_ids
from sessionlake.columnar.keyed_hash import SECRET_BYTES, keyed_hashes
from sessionlake.engine.operator import Aside, Counted, Split
from sessionlake.sources.contract import Checked
from sessionlake.sources.decoding.rows import Origin, Rows
from sessionlake.stream.causes import counted_causes
from sessionlake.stream.ingest import DEAD, EventSpec, Judged
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.schemas import SIDE, count_of


def unique_secret(before: BatchCommit | None) -> str:
    """Return the secret of a pipeline's identities, given the batch before: a new secret for the first batch, none if that batch had none."""
    return secrets.token_hex(SECRET_BYTES) if before is None else before.settings.unique_secret


def id_hashes(keys: pa.Array, ids: pa.Array, number: int, secret: str) -> Ints:
    """Return the hash of each identity; `number` is that of the input.

    Without a secret it is Spark's `xxhash64(event_id, xxhash64(key, number))`. Of that everybody can compute ids of one hash.

    >>> id_hashes(pa.array(["ann"]), pa.array(["order-1"]), 0, "").tolist()
    [9031204105917562359]
    """
    # Many events share a key: each is hashed once.
    coded = keys.dictionary_encode()
    at = coded.indices.to_numpy()
    if not secret:
        of_key = record_ids(coded.dictionary, np.full(len(coded.dictionary), number, np.int64))
        return record_ids(ids, of_key[at])
    # The sum of two such hashes is such a hash, as their secrets differ.
    of_keys = keyed_hashes(coded.dictionary.cast(pa.binary()), f"{secret} key {number}".encode())
    of_ids = keyed_hashes(ids.cast(pa.binary()), f"{secret} id".encode())
    return (of_ids + of_keys[at]).view(np.int64)


ID_HASH = "id_hash"
"""The hash of an event's input, key and id."""
NO_ID, LONG_ID, OLD = "null or empty id", "id too long", "older than event.unique_for"
"""Reasons of dead letters: nobody can know whether such an event is a duplicate."""
CHUNK, ROW = "chunk", "row"
_ODD = -7046029254386353131
"""An odd number: times that differ stay different when they are multiplied by it, in 64 bits."""
_PLACE = ("partition", "first", "second", "third", CHUNK)
"""Columns of the place of a row's chunk in its source's order; with ROW the row's own place. Rows lack them if order does not count."""


def hashes_of(checked: Checked, at: Ints, number: int, secret: str) -> Ints:
    """Return the hash of some events' identity, their time left out, as `id_hashes` does."""
    index = pa.array(at)
    ids = pa.nulls(len(at), pa.string()) if checked.event_id is None else checked.event_id.take(index)
    return id_hashes(checked.key.take(index), ids, number, secret)


def taken(rows: Rows, at: Ints) -> Rows:
    """Return the rows at some places, ascending; they are the same rows in dead letters."""
    if len(at) == rows.table.num_rows:
        return replace(rows, places=np.arange(len(at)))
    index = pa.array(at)
    return replace(
        rows,
        table=rows.table.take(index),
        error=None if rows.error is None else rows.error.take(index),
        raw=lambda places: rows.raw(at[places]),
        source=lambda places: rows.source(at[places]),
        places=at,
    )


def refused(spec: EventSpec, judged: Judged, watermark_us: int) -> list[tuple[Ints, str]]:
    """Return the good rows of which nobody can know whether they are duplicates, each with the reason."""
    at = judged.good
    ids = judged.checked.event_id
    if ids is None or spec.unique_us is None:
        return []
    lengths = pc.fill_null(pc.binary_length(ids), 0).to_numpy(zero_copy_only=False)[at]
    empty = lengths == 0
    long = np.zeros(len(at), bool) if spec.max_key_bytes is None else lengths > spec.max_key_bytes
    old = ~empty & ~long & (judged.checked.time_us[at] < watermark_us - spec.unique_us)
    found = ((empty, NO_ID), (long, f"{LONG_ID}: event.max_key_bytes is {spec.max_key_bytes}"), (old, OLD))
    return [(at[mask], reason) for mask, reason in found if mask.any()]


def letters(judged: Judged, at: Ints, reason: str, name: str, *, one_of_several: bool) -> Split:
    """Yield the dead letters of some rows, and their numbers, also by input if there are several."""
    rows = judged.dead_letters(at, pa.repeat(reason, len(at)))
    if one_of_several:
        rows = rows.append_column(SIDE, pa.repeat(name, len(at)))
    yield Aside(DEAD, rows)
    yield counted({"input": len(at), "dead": len(at)}, name, one_of_several=one_of_several)
    yield counted_causes([pa.repeat(reason, len(at))])


def counted(numbers: dict[str, int], name: str, *, one_of_several: bool) -> Counted:
    """Return counts, also by input if there are several."""
    each = {count_of(count, name): value for count, value in numbers.items()} if one_of_several else {}
    return Counted(numbers | each)


@dataclass
class Texts:
    """The texts and places of rows that an operator asks for: it gets the rows' numbers, and they are noted."""

    asked: Bools

    def numbers(self, at: Ints) -> pa.Array:
        """Stand for the texts of rows."""
        self.asked[at] = True
        return pa.array(at).cast(pa.string())


def sent(judged: Judged, at: Ints, hashes: Ints, asked: Bools, chunk: int | None) -> pa.Table:
    """Return the judged rows at some places as they travel. Only `asked` rows have their text and its place.

    `chunk` is the number of the rows' chunk; None if their order does not count.
    """
    rows, n = taken(judged.rows, at), len(at)
    places: dict[str, pa.Array] = {}
    if chunk is not None and rows.origin is not None:
        numbers = (rows.origin.partition, *rows.origin.order, chunk)
        places = {name: pa.repeat(pa.scalar(value, pa.int64()), n) for name, value in zip(_PLACE, numbers, strict=True)}
        places[ROW] = pa.array(at)
    columns = {
        "key": plain_text(judged.checked.key.take(pa.array(at))),
        "time_us": pa.array(judged.checked.time_us[at]),
        ID_HASH: pa.array(hashes),
        **places,
        "raw": _texts(rows.raw, asked),
        "source": _texts(rows.source, asked),
        **{f"column_{i}": plain_text(combined(column)) for i, column in enumerate(rows.table.columns)},
    }
    return pa.table(columns)


def _texts(texts: Callable[[Ints], pa.Array], asked: Bools) -> pa.Array:
    """Return texts at the rows that are asked for, and null at the others."""
    if not asked.any():
        return pa.nulls(len(asked), pa.string())
    some = texts(np.flatnonzero(asked)).cast(pa.string())
    # The k-th asked row has text k.
    return some.take(pa.array(np.cumsum(asked) - 1, mask=~asked))


def arrived(table: pa.Table, names: Sequence[str], *, ordered: bool) -> Iterator[tuple[int, Rows]]:
    """Yield events of `sent` as rows of a source again, with their chunk: by chunk if their order counts."""
    if not len(table):
        return
    if not ordered:
        yield 0, _rows(table, names, None)
        return
    table = table.sort_by([(CHUNK, "ascending"), (ROW, "ascending")])
    chunks, starts = np.unique(table[CHUNK].to_numpy(), return_index=True)
    for chunk, first, last in zip(chunks.tolist(), starts, [*starts[1:], len(table)], strict=True):
        part = table.slice(first, last - first)
        yield chunk, _rows(part, names, Origin(0, (0, 0, 0)))


def _rows(table: pa.Table, names: Sequence[str], origin: Origin | None) -> Rows:
    raw, source = combined(table["raw"]), combined(table["source"])
    given = [name for name in table.column_names if name.startswith("column_")]
    return Rows(
        table.select(given).rename_columns(names),
        None,
        raw=lambda at: raw.take(pa.array(at)),
        source=lambda at: source.take(pa.array(at)),
        origin=origin,
        places=table[ROW].to_numpy() if ROW in table.column_names else None,
    )


def first_copies(table: pa.Table) -> Bools:
    """Say which events stand for their copies in a batch: of equal identities the first by place, then by columns."""
    time_us, hashes = (combined(table[name]).to_numpy() for name in ("time_us", ID_HASH))
    mixed = hashes ^ (time_us * _ODD)
    ordered = np.sort(mixed)
    chosen = np.ones(len(table), bool)
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(several):
        return chosen
    # Only identities that may come several times are put in order.
    places = np.flatnonzero(is_among(mixed, several))
    names = [name for name in (*_PLACE, ROW) if name in table.column_names]
    columns = [name for name in table.column_names if name.startswith("column_")]
    some = table.select(["time_us", ID_HASH, *names, *columns]).take(pa.array(places))
    by = pc.sort_indices(some, sort_keys=[(name, "ascending") for name in some.column_names]).to_numpy()
    time_us, hashes = some["time_us"].to_numpy()[by], some[ID_HASH].to_numpy()[by]
    copy = np.zeros(len(by), bool)
    copy[1:] = (time_us[1:] == time_us[:-1]) & (hashes[1:] == hashes[:-1])
    chosen[places[by[copy]]] = False
    return chosen
