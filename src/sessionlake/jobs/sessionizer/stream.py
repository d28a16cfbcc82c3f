"""The two input streams, events and corrections, as one streaming DataFrame."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config.load import Config
from sessionlake.config.source import SourceSection
from sessionlake.jobs.sessionizer.operator import CONTENT, CORRECTION, PATH
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.sources.kafka import record_stream
from sessionlake.warehouse.tables import Tables, spark_schema

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
RECORDS_BESIDE_CORRECTIONS = 2000
_ALL_FILES = 1 << 30
_FOREVER = "1000000d"


def is_local(path: str) -> bool:
    """Say whether workers can open the path themselves."""
    return "://" not in path or path.startswith("file://")


def read_inputs(
    tables: Tables, config: Config, spec: SessionizerSpec, *, everything_at_once: bool = False
) -> DataFrame:
    """Return rows of files (path, and content where workers can't open it), events or records, corrections, and the batch's clock."""
    spark = tables.spark
    if config.source.kind == "kafka":
        events = record_stream(spark, config.source, spec.columns, everything_at_once=everything_at_once)
    else:
        limits = _limits(config.source, everything_at_once=everything_at_once)
        events = _files(spark, config, limits) if config.source.kind == "files" else _delta(spark, config, spec, limits)
    corrections = (
        spark.readStream.format("delta")
        .option("skipChangeCommits", "true")
        .load(tables.path(schemas.CORRECTIONS))
        .select(F.struct(*schemas.CORRECTIONS_SCHEMA.names).alias(CORRECTION))
    )
    return events.unionByName(corrections, allowMissingColumns=True).withColumn("clock", F.current_timestamp())


class ControlInput:
    """What a batch reads of the control input, as its offsets tell, and so which columns its rows need."""

    def __init__(self, tables: Tables, config: Config) -> None:
        self._tables, self._config = tables, config
        self._before: tuple[int, str | None] | None = None
        self._records: str | None = None

    def rows(self, rows: DataFrame, batch_id: int, offsets: str | None) -> DataFrame:
        """Return a batch's rows, without the column of corrections where there are none.

        On the way to Python Spark asks after each row how large the rows so far are. Of a column of lists that are null, as
        an event's are, it looks at each row before to tell: 100,000 rows took 20 seconds. Beside corrections few rows go
        together; of files, which are one row each, there are few anyway.
        """
        reads = self._reads(batch_id, offsets)
        if self._config.source.kind != "files" and reads != (self._records is not None):
            conf = rows.sparkSession.conf
            usual = self._records or conf.get(RECORDS)
            conf.set(RECORDS, RECORDS_BESIDE_CORRECTIONS if reads else str(usual))
            self._records = usual if reads else None
        return rows if reads else rows.drop(CORRECTION)

    def _reads(self, batch_id: int, offsets: str | None) -> bool:
        """Compare the position in the control input with that of the batch before, as Spark does before it asks a source for rows."""
        if self._before is None or self._before[0] != batch_id - 1:
            path = f"{self._config.checkpoint}/offsets/{batch_id - 1}"
            self._before = batch_id - 1, self._tables.read_text(path) if batch_id else None
        before, self._before = self._before[1], (batch_id, offsets)
        if batch_id == 0 and self._tables.latest_version(schemas.CORRECTIONS) == 0:
            return False  # the table was made, and nobody has written to it
        return control_position(offsets) != control_position(before) or offsets is None


def control_position(offsets: str | None) -> str:
    """Return the position in the control input, the second of the streams, of an offset file's text; `-` where there is none."""
    return next(iter((offsets or "").splitlines()[3:]), "-")


def _limits(source: SourceSection, *, everything_at_once: bool) -> dict[str, int]:
    """Return the options that bound a batch."""
    if everything_at_once:
        return {"maxFilesPerTrigger": _ALL_FILES}
    limits = {"maxFilesPerTrigger": source.files_per_batch, "maxBytesPerTrigger": source.bytes_per_batch}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _files(spark: SparkSession, config: Config, limits: dict[str, int]) -> DataFrame:
    reader = (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length long, content binary")
        .options(**limits)
        # Spark would otherwise pass over files a week older than the newest, without a word.
        .option("maxFileAge", _FOREVER)
        .option("recursiveFileLookup", "true")
    )
    rows = reader.load(config.source.path)
    if is_local(config.source.path):
        return rows.select(F.regexp_replace("path", "^file:(//)?", "").alias(PATH))
    return rows.select(F.col("path").alias(PATH), F.col("content").alias(CONTENT))


def _delta(spark: SparkSession, config: Config, spec: SessionizerSpec, limits: dict[str, int]) -> DataFrame:
    rows = (
        spark.readStream.format("delta").option("skipChangeCommits", "true").options(**limits).load(config.source.path)
    )
    # Delta's streams know no _metadata: a dead letter's place is the table.
    return rows.select(*(F.col(f.name).cast(f.dataType) for f in spark_schema(spec.columns.schema)))
