"""A batch's rows in a map task: by input, decoded, and each part to the method of the operator that is meant for it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Operator, Split
from sessionlake.sources.decoding.rows import Decoder
from sessionlake.stream.ingest import CORRECTIONS, by_input, naming_rows


def split_source(
    operator: Operator[Any], decoder_of: Callable[[str], Decoder], rows: pa.Table, context: BatchContext
) -> Split:
    """Yield the pieces of an operator for a table of a batch's rows; `decoder_of` returns the decoder of an input.

    It is `Operator.split` for every operator.
    """
    yield from operator.scheduled(context)
    for name, part in by_input(rows):
        if name == CORRECTIONS:
            yield from operator.split_corrections(context, part)
            continue
        decoder = decoder_of(name)
        events, sent = decoder.part(part)
        if sent is not None:
            yield from operator.split_sent(context, sent)
        if decoder.columns.ordered:
            decoded = decoder.decode_in_order(events, context.files.get(name, {}), context.part)
        else:
            decoded = decoder.decode(events)
        for number, found in enumerate(decoded):
            yield from naming_rows(partial(operator.split_rows, context, name, number), found)
