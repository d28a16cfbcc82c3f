"""A pipeline's inputs, events and control, as a streaming DataFrame.

Spark's log of offsets has a line for each input, in this order, after two lines of Spark's own.
"""

from collections.abc import Mapping
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.names import column_of
from sessionlake.sources.base import Source, Versioned
from sessionlake.stream.ingest import CORRECTION, CORRECTIONS, EVENTS, INPUT, EventSpec
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
RECORDS_BESIDE_CORRECTIONS = 2000


def read_inputs(
    tables: Tables,
    sources: Mapping[str, Source],
    inputs: Mapping[str, EventSpec],
    *,
    everything_at_once: bool = False,
) -> DataFrame:
    """Return the rows of the event inputs, and corrections. INPUT names a row's input, `column_of` gives its columns' names."""
    events = []
    for name, spec in inputs.items():
        rows = sources[name].stream(spec.decoder.columns, everything_at_once=everything_at_once)
        rows = rows.toDF(*(column_of(name, column) for column in rows.columns))
        events.append(rows.withColumn(INPUT, F.lit(name)))
    # Some of its columns not every pipeline has.
    own = set(tables[schemas.CORRECTIONS].read().columns)
    columns = [name for name in schemas.corrections(until=True, layout=True, ids=True).names if name in own]
    corrections = (
        tables.spark.readStream.format("delta")
        .option("skipChangeCommits", "true")
        .load(tables[schemas.CORRECTIONS].uri)
        .select(F.struct(*columns).alias(CORRECTION), F.lit(CORRECTIONS).alias(INPUT))
    )
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), [*events, corrections])


class PlannedInputs:
    """The input of batches that Spark's stream does not give: what the checkpoint has planned, and versions of sources."""

    def __init__(
        self, tables: Tables, config: Config, sources: Mapping[str, Source], inputs: Mapping[str, EventSpec]
    ) -> None:
        planned = {name: source.planned(tables, partial(column_of, name)) for name, source in sources.items()}
        self._planned = {name: input_ for name, input_ in planned.items() if input_ is not None}
        self._versioned = versioned(config, sources)
        self._names = {pin_of(side): name for name, side in config.inputs.items()}
        self._inputs, self._sources = inputs, sources
        self._before: tuple[int, str | None] | None = None
        self.is_small = False
        """Whether all inputs of the batch whose rows were asked for last have few rows, corrections aside."""

    def rows(self, rows: DataFrame, batch_id: int, offsets: str | None) -> DataFrame:
        """Return a batch's rows, with the rows that Spark leaves out; `offsets` is the text of the batch's offset file."""
        for name, input_ in self._planned.items():
            found = input_.rows(rows, batch_id, offsets)
            rows = rows if found is rows else _named(found, name)
        self.is_small = self._is_small(batch_id, offsets)
        return rows

    def _is_small(self, batch_id: int, offsets: str | None) -> bool:
        before, self._before = self._before, (batch_id, offsets)
        if before is None or before[0] != batch_id - 1 or self._versioned:
            return False  # the first batch of a run; or positions that don't say what is read
        first, last = (event_positions(text, len(self._sources)) for text in (before[1], offsets))
        return all(
            a == b or ("-" not in (a, b) and source.is_small(a, b))
            for source, a, b in zip(self._sources.values(), first, last, strict=True)
        )

    def with_versions(self, rows: DataFrame, last: Mapping[str, str], pins: Mapping[str, str]) -> DataFrame:
        """Return a batch's rows, with rows of versioned sources: `pins` are the batch's, `last` the pins of the batch before."""
        for pin, source in self._versioned.items():
            name = self._names[pin]
            found = source.rows(self._inputs[name].decoder.columns, last.get(pin), pins[pin])
            found = found.toDF(*(column_of(name, column) for column in found.columns))
            rows = _named(rows.unionByName(found, allowMissingColumns=True), name)
        return rows


def pin_of(side: Config) -> str:
    """Return the name under which a commit has the version of an input, as no lookup can be called."""
    return side.source.place_at


def versioned(config: Config, sources: Mapping[str, Source]) -> dict[str, Versioned]:
    """Return the sources that batches read by versions, by the names under which commits have these."""
    sources_by_pin = {pin_of(side): sources[name].versioned() for name, side in config.inputs.items()}
    return {pin: source for pin, source in sources_by_pin.items() if source is not None}


def _named(rows: DataFrame, name: str) -> DataFrame:
    """Return rows; rows that a source has added get their input's name, if a batch's rows have it."""
    return rows.fillna(name, [INPUT]) if INPUT in rows.columns else rows


class ControlInput:
    """The part of the control input that a batch reads, by its offsets. It decides which columns the batch's rows need."""

    def __init__(self, tables: Tables, config: Config, sources: Mapping[str, Source]) -> None:
        self._tables, self._config = tables, config
        self._one_row_a_file = all(source.one_row_a_file for source in sources.values())
        self._unneeded = (CORRECTION, INPUT) if tuple(sources) == (EVENTS,) else (CORRECTION,)
        self._before: tuple[int, str | None] | None = None
        self._records: str | None = None
        self.has_rows = False
        """Whether the batch whose rows were asked for last reads corrections."""

    def rows(self, rows: DataFrame, batch_id: int, offsets: str | None) -> DataFrame:
        """Return a batch's rows, without the columns of corrections if it reads only events.

        If these are events of a single input, the columns of inputs are left out too.
        """
        # On the way to Python Spark estimates the size of the rows after each row. For a null list column, as events have
        # it for corrections, it scans all earlier rows: 100,000 rows took 20 seconds. So in a batch with
        # corrections few rows are sent together. Files need no such limit, since a file is one row.
        reads = self.has_rows = self._reads(batch_id, offsets)
        if not self._one_row_a_file and reads != (self._records is not None):
            conf = rows.sparkSession.conf
            usual = self._records or conf.get(RECORDS)
            conf.set(RECORDS, RECORDS_BESIDE_CORRECTIONS if reads else str(usual))
            self._records = usual if reads else None
        return rows if reads else rows.drop(*self._unneeded)

    def _reads(self, batch_id: int, offsets: str | None) -> bool:
        """Compare the position in the control input with that of the batch before, as Spark does before it asks a source for rows."""
        if self._before is None or self._before[0] != batch_id - 1:
            path = f"{self._config.checkpoint}/offsets/{batch_id - 1}"
            self._before = batch_id - 1, self._tables.read_text(path) if batch_id else None
        before, self._before = self._before[1], (batch_id, offsets)
        if batch_id == 0 and self._tables[schemas.CORRECTIONS].latest_version() == 0:
            return False  # the table was made, and nobody has written to it
        return control_position(offsets) != control_position(before) or offsets is None


def event_positions(offsets: str | None, inputs: int) -> list[str]:
    """Return the positions in the event inputs, from an offset file's text; `-` for an input without a position."""
    return [*(offsets or "").splitlines()[2 : 2 + inputs], *["-"] * inputs][:inputs]


def control_position(offsets: str | None) -> str:
    """Return the position in the control input, the last of the streams, of an offset file's text; `-` if there is none."""
    return next(reversed((offsets or "").splitlines()[3:]), "-")
