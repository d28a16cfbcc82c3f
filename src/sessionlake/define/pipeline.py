"""`sessionlake.Pipeline`: a pipeline in Python, with the sections of a config file."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sessionlake.config.file import ConfigFile, parse_toml
from sessionlake.config.load import Config, config_of, parse_config
from sessionlake.define.document import document_of
from sessionlake.define.sections import Operator
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from pyspark.sql import SparkSession

    from sessionlake.define.names import Given
    from sessionlake.local.source import Lookups
    from sessionlake.preflight.check import Checked
    from sessionlake.stream.run import RunSummary
    from sessionlake.testing import Harness
    from sessionlake.warehouse.batch_commit import BatchCommit

    Row = Mapping[str, Any]


class Pipeline:
    """A pipeline by name and operator; each further argument is a section of its config, or a key of [pipeline].

    Relative paths are relative to `directory`, as a file's paths are to its folder. Durations are texts or timedeltas.
    InvalidConfigError has all problems in the words of a file's, each with its key.

    >>> from sessionlake import Count, Event, Files, Pipeline, Sessions
    >>> pipeline = Pipeline(
    ...     "sittings",
    ...     warehouse="lake/sittings",
    ...     source=Files("events", format="json"),
    ...     event=Event(key="author", time="at", time_unit="us"),
    ...     operator=Sessions(gap="1 hour"),
    ...     aggregates={"commits": Count()},
    ... )
    >>> with pipeline.test([{"author": "ann", "at": 0}, {"author": "ann", "at": 60_000_000}]) as harness:
    ...     [(row["session_end"], row["commits"]) for row in harness.last.changes]
    [(60000000, 2)]
    """

    config: Config
    """The checked config, with absolute paths: for `sessionlake.read` and all functions of configs."""

    def __init__(self, name: str, *, operator: Operator, directory: str | Path = ".", **given: "Unpack[Given]") -> None:
        document = document_of(name, operator, given)
        self._take(document, parse_config(document, Path(directory).resolve()))

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Return the pipeline of a file, with its project's defaults; InvalidConfigError has each problem's place."""
        file = ConfigFile.read(path)
        made = cls.__new__(cls)
        made._take(file.merged(), config_of(file))  # noqa: SLF001 (its own)
        return made

    def check(self) -> "Checked":
        """Return what `sessionlake.check` finds in the source, the tables and on this machine. Starts no JVM."""
        from sessionlake.preflight.check import check

        return check(self.config)

    def run(
        self,
        *,
        once: bool = False,
        drain: bool = False,
        spark: "SparkSession | None" = None,
        on_commit: "Callable[[BatchCommit], None]" = lambda _: None,
    ) -> "RunSummary":
        """Run it as `sessionlake run` does: until ctrl-C or, with `once`, over the input that is available now.

        `drain` then closes all open results. Without `spark` the active session is used, or one is started. `on_commit` gets
        each batch once it is committed.
        """
        if drain and not once:
            raise ConfigError("drain: closes the results of a finite input; pass once=True, too")
        from sessionlake.cli.stream import run_stream

        return run_stream(self.config, on_commit, once=once, drain=drain, spark=spark)

    def test(
        self,
        rows: "Sequence[Row] | Mapping[str, Sequence[Row]]" = (),
        *,
        clock_us: "int | datetime | None" = None,
        schema: Mapping[str, str] | None = None,
        lookups: "Lookups | None" = None,
    ) -> "Harness":
        """Return a harness that has run the rows as its first batch, whose outputs are its `last`; without rows it has run none.

        It needs no Spark. Rows are those of the one input, or by input. `clock_us` is the time of the batch, by default that of its
        newest event. `schema` gives the types of columns, `lookups` the rows that events are looked
        up in, by the name of the lookup.
        """
        from sessionlake.testing import Harness

        harness = Harness(self.config, schema=schema, lookups=lookups)
        if rows:
            harness.process(rows, clock_us)
        return harness

    def to_toml(self) -> str:
        """Return the text of a file with this config; paths are as they were given."""
        import tomlkit

        return tomlkit.dumps(self._document)

    def save(self, path: str | Path) -> None:
        """Write `to_toml()` to a file, whole or not at all; a file that is there is replaced.

        ConfigError if the file lies elsewhere than `directory`, and relative paths would be others there.
        """
        file, text = Path(path).resolve(), self.to_toml()
        there = parse_config(parse_toml(text, path), file.parent)
        if there != self.config.model_copy(update={"directory": there.directory, "project_warehouse": None}):
            raise ConfigError(
                f"save: {str(path)!r} is not in {self.config.directory!r}, which this pipeline's paths are relative to; "
                f"save it there, or pass directory={str(file.parent)!r} to Pipeline"
            )
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(text, encoding="utf-8", newline="")
            temporary.replace(file)
        except OSError as error:
            raise ConfigError(f"save: {str(path)!r} can't be written ({error.strerror}); pass another file") from error
        finally:
            temporary.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"Pipeline({self.config.pipeline.name!r}, {self.config.operator!r})"

    def _take(self, document: dict[str, Any], config: Config) -> None:
        self._document, self.config = document, config
