"""The pieces of a map task that need no shard, with the columns of both inputs."""

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.engine.operator import Aside, Counted, Split, counts_of
from sessionlake.operators.shared.sides.columns import Sides, event_types
from sessionlake.stream.ingest import ARCHIVED, DEAD
from sessionlake.warehouse.schemas import SIDE, count_of


def of_side(sides: Sides, side: str, pieces: Split) -> Split:
    """Yield the pieces of `Judged.asides` of an input: rows of the archive and dead letters name it, and numbers count for it, too."""
    for piece in pieces:
        if isinstance(piece, Counted):
            yield from counted(side, dict(piece.stats))
        elif isinstance(piece, Aside) and piece.kind == ARCHIVED:
            yield Aside(ARCHIVED, joint_events(sides, side, piece.rows))
        elif isinstance(piece, Aside) and piece.kind == DEAD:
            yield Aside(DEAD, piece.rows.append_column(SIDE, pa.repeat(side, len(piece.rows))))


def counted(side: str, stats: dict[str, int]) -> Split:
    """Yield numbers of both inputs, and of the one."""
    yield Counted(stats | {count_of(name, side): value for name, value in counts_of(stats).items()})


def joint_events(sides: Sides, side: str, events: pa.Table) -> pa.Table:
    """Return events of an input with the struct of both inputs' columns, and its name."""
    n, own = len(events), sides[side]
    given = combined(events["event"])
    names = {f"{own.name}_{name}": name for name in own.events.columns.inputs}
    fields = event_types(sides) or {"none": pa.bool_()}
    arrays = [
        pc.struct_field(given, names[name]) if name in names else pa.nulls(n, type_) for name, type_ in fields.items()
    ]
    struct = pa.StructArray.from_arrays(arrays, names=list(fields))
    at = events.schema.get_field_index("event")
    return events.set_column(at, "event", struct).append_column(SIDE, pa.repeat(side, n))
