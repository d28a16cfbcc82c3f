"""The jobs, one entry each: its name, its options, and the tables that it reads and writes.

The command line, the lineage of runs and docs/commands.md derive from it, and tests compare the DAGs' forms with it. A
new job is a module with a function, and an entry here.

Nothing heavy is imported. Entries name functions by path, and tables by name, because the module of the schemas imports
pyarrow. Lineage may only name tables of `sessionlake.warehouse.schemas`, or tables named below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

STREAM_RUN = "run"
"""Name of the stream's runs in metrics, lineage and the last line of `run`; it is no job."""

SOURCE = "source"
"""The events as the config's source has them."""
EVENTS_AGAIN = "events again"
"""The archive, and a source that can be read again."""
RULE_TABLES = "tables of the rule"
"""The tables of [expire]."""
CHANGES, SNAPSHOT = "changelog", "snapshot"
"""The tables of the pipeline's results, by role: for example session_changelog and sessions, or window_changelog and windows."""
STATE_CHANGES, STATE_SNAPSHOT = "changelog of the state", "snapshot of the state"
"""The tables of the state, if it is not the results, by role: for example slice_changelog and slices. Some pipelines have none."""
SINK = "sink"
"""The topics and tables of [sink]."""

Counted = Mapping[str, tuple[str, ...]]
"""By table, the counts of the report that add up to the rows read or written of it; none if they are not counted."""


class Kind(Enum):
    """The type of an option's value."""

    TEXT = "text"
    FLAG = "flag"
    WHOLE = "whole number, 1 or more"
    SHARE = "number from 0 to 1"
    TIME = "ISO date or time, UTC"
    """The function gets microseconds since 1970."""
    CHOICE = "one of the choices"
    DIRECTORY = "directory"
    """The function gets a Path."""
    TABLE = "NAME=PATH"
    """The function gets a mapping of the names to the paths."""


@dataclass(frozen=True)
class Option:
    """One option of a job: `--max-share` of the command line, `max_share` of a DAG's form."""

    name: str
    help: str
    kind: Kind = Kind.TEXT
    default: str | None = None
    choices: tuple[str, ...] = ()
    required: bool = False
    several: bool = False
    """May be given several times; the function gets a tuple."""
    argument: str = ""
    """The function's argument, if it is not the name."""
    metavar: str | None = None
    default_text: str = ""
    """The default as the help shows it, if the value itself is not clear."""
    in_dag: bool = True
    """Whether the job's DAG has it in its form."""

    @property
    def flag(self) -> str:
        """The option as it is written on a command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def target(self) -> str:
        """The argument of the function that takes the value."""
        return self.argument or (f"{self.name}_us" if self.kind is Kind.TIME else self.name)


@dataclass(frozen=True)
class Job:
    """One job.

    `function` is "module:attribute". That of a job with a record is called as `function(spark, config, *, run_id, dry_run,
    on_step, **options)` and returns a JobReport; the others have commands of their own (sessionlake.cli.registry).
    """

    name: str
    """Its name in job_runs, metrics and lineage."""
    summary: str
    function: str
    options: tuple[Option, ...] = ()
    reads: Counted = field(default_factory=dict)
    writes: Counted = field(default_factory=dict)
    more: str = ""
    """The text of the command's help after the summary."""
    operands: tuple[str, ...] = ("CONFIG",)
    """The arguments of the command line that have no option name."""
    recorded: bool = True
    """Whether runs are recorded in job_runs: they have an id, are done once, and have a dry run."""
    record_ages: bool = False
    """Whether records of runs may go with age: nothing is derived from them, and there are many."""
    corrections: str | None = None
    """The report's count of appended corrections. After the job a pass of the stream follows; the command has --apply/--no-apply."""
    may_need_nothing: bool = False
    """Whether its arguments alone may mean that there is nothing to do, which is then reported before batches are looked for."""
    applies_itself: bool = False
    """The function takes `apply` and runs the passes itself, in between."""
    extra: tuple[str, str] | None = None
    """A module that must be installed, and the extra that brings it."""
    dag: str | None = None
    """The file in dags/ that makes the job's DAGs: a DAG for each pipeline, called NAME.JOB."""
    over_project: bool = True
    """Whether its command also takes a project, and does the job of each pipeline."""
    searches_source: bool = False
    """Whether Spark itself reads the source, of whatever kind it is."""
    needs: str = ""
    """The capability that the job needs of an operator, from `config.operators.CAPABILITIES`."""

    @property
    def command(self) -> str:
        """The job as the command line names it."""
        return self.name.replace("_", "-")

    @property
    def has_apply(self) -> bool:
        """Say whether the command has --apply/--no-apply."""
        return self.applies_itself or self.corrections is not None


def _times(what: str, *, required: bool = False, unbounded: bool = False) -> tuple[Option, Option]:
    """Return the two options of a range of times, the start inclusive, the end exclusive."""
    from_first, to_last = ("; from the first if not given", "; to the last if not given") if unbounded else ("", "")
    return (
        Option("from", f"ISO date or time (UTC), inclusive{what}{from_first}.", Kind.TIME, required=required, metavar="TIME"),
        Option("to", f"ISO date or time (UTC), exclusive{what}{to_last}.", Kind.TIME, required=required, metavar="TIME"),
    )  # fmt: skip


def _rows(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names, ())


_COMPUTED = (CHANGES, SNAPSHOT)
_STATE = (STATE_CHANGES, STATE_SNAPSHOT)
_EVERYTHING = _rows(*_COMPUTED, *_STATE, "late_events", "dead_letters", "corrections", "correction_outcomes", "events")

JOBS: tuple[Job, ...] = (
    Job(
        "compact",
        "Fold the changelog into the snapshot, trim it, and rewrite small files of all tables.",
        "sessionlake.jobs.compact:compact",
        (
            Option(
                "method",
                "How the changelog is folded into the snapshot; auto takes the cheaper way for its size.",
                Kind.CHOICE,
                "auto",
                ("auto", "merge", "rewrite"),
            ),
        ),
        reads={CHANGES: ("rows_folded",), STATE_CHANGES: ()},
        writes={SNAPSHOT: ("rows_rewritten",), STATE_SNAPSHOT: ()},
        record_ages=True,
        dag="compact_tables",
    ),
    Job(
        "reprocess_late",
        "Restate the late events that are still within retention.",
        "sessionlake.jobs.late.reprocess:reprocess_late",
        _times("", unbounded=True),
        more="The others go to dead_letters.",
        reads=_rows("late_events", "correction_outcomes"),
        writes={"corrections": ("corrections",), "dead_letters": ("expired",)},
        corrections="corrections",
        dag="reprocess_late",
        needs="restating",
    ),
    Job(
        "redeem",
        "Read dead letters again and restate the events that are valid now.",
        "sessionlake.jobs.redeem.job:redeem",
        (
            Option(
                "reason",
                "A reason of dead_letters, up to its colon, such as 'too far in the future'; may be given several times.",
                required=True,
                several=True,
                argument="reasons",
                metavar="TEXT",
            ),
            *_times(", of the batch that refused them"),
        ),
        more="Each is redeemed once.",
        reads=_rows("dead_letters"),
        writes={"corrections": ("redeemed",)},
        corrections="redeemed",
        dag="redeem_dead_letters",
        needs="redeeming",
    ),
    Job(
        "expire",
        "Remove expired sessions, windows, pairs or rows: by age, or by any SQL over the row and other tables.",
        "sessionlake.jobs.expire:expire",
        (
            Option("where", "SQL over a row, in place of the config's rule."),
            Option("ttl", "Time to live after the end, as in '90 days', in place of the config's rule."),
            Option(
                "table",
                "A Delta table that --where may name.",
                Kind.TABLE,
                several=True,
                argument="tables",
                metavar="NAME=PATH",
                in_dag=False,
            ),
            Option("max_per_run", "Tombstones of this run at the most.", Kind.WHOLE),
            Option("max_per_second", "Tombstones a second at the most.", Kind.WHOLE, in_dag=False),
            Option("max_share", "Refuse to remove more than this share of all there are.", Kind.SHARE),
            Option(
                "to_topic",
                "Send the tombstones to the Kafka topic that the events come from.",
                Kind.FLAG,
                in_dag=False,
            ),
        ),
        reads=_rows(*_COMPUTED, RULE_TABLES),
        writes={"corrections": ("expired",)},
        corrections="expired",
        may_need_nothing=True,
        dag="expire_sessions",
    ),
    Job(
        "forget",
        "Remove all data of some keys, and prove that it is gone.",
        "sessionlake.jobs.forget:forget",
        (
            Option(
                "keys_file",
                "The keys, one a line: a file that only you can read (mode 0600), or - for standard input.",
            ),
            Option(
                "proof",
                "Only search for the keys; remove nothing. Exit code 8 if one is found, or may be left.",
                Kind.FLAG,
                in_dag=False,
            ),
            Option("wait", "How long to wait for a stream that runs.", default="10 minutes"),
            Option(
                "data_docs",
                "The directory in which `quality` keeps validation results and HTML.",
                Kind.DIRECTORY,
                default_text="quality, next to the config",
                in_dag=False,
            ),
        ),
        more="Sessions or windows, late events, dead letters, files, logs, stores.",
        reads=_EVERYTHING,
        searches_source=True,
        writes=_EVERYTHING,
        applies_itself=True,
        dag="forget_key",
    ),
    Job(
        "backfill",
        "Compute a date range's sessions or windows from the events again and correct those that differ.",
        "sessionlake.jobs.backfill:backfill",
        _times(", for results that reach into the range", required=True),
        reads=_rows(EVENTS_AGAIN, *_COMPUTED, "late_events", "correction_outcomes"),
        writes={"corrections": ("corrections",)},
        corrections="corrections",
        dag="backfill_sessions",
        needs="recompute",
    ),
    Job(
        "rebuild",
        "Process all events into a new warehouse, for example after a change of the key or of an aggregate's definition.",
        "sessionlake.jobs.rebuild:rebuild",
        (
            Option("warehouse", "Path of the new warehouse, as the config is to name it.", required=True),
            Option("switch", "Then write the new path into the config.", Kind.FLAG),
            Option("from_topic", "Kafka: build from the events that the topic still holds, even if some are lost.", Kind.FLAG),
            Option("from_archive", "Build from the archive; then the stream goes on where the archive ends.", Kind.FLAG),
            Option("from_what_is_there", "With --from-archive: even if the archive lacks events.", Kind.FLAG),
        ),
        reads=_rows(SOURCE),
        recorded=False,
        over_project=False,
        dag="rebuild_tables",
    ),
    Job(
        "quality",
        "Check the tables against the suites in expectations/; exit code 8 if checks fail.",
        "sessionlake.quality.run:run_quality",
        (
            Option(
                "fail_on",
                "Least severity of a failed check that ends the command with exit code 8.",
                Kind.CHOICE,
                "critical",
                ("critical", "warn"),
            ),
            Option(
                "table", "Check this table only; may be repeated.", several=True, argument="only", in_dag=False
            ),
            Option(
                "data_docs",
                "The directory for validation results and HTML.",
                Kind.DIRECTORY,
                default_text="quality, next to the config",
                in_dag=False,
            ),
        ),
        reads=_rows(*_COMPUTED, STATE_CHANGES, "late_events", "correction_outcomes", "batches"),
        writes={"quality_results": ("checks",)},
        record_ages=True,
        extra=("great_expectations", "quality"),
        dag="quality_checks",
    ),
    Job(
        "backup",
        "Save tables and checkpoint as of one batch into DIR, a new path or URI, while the pipeline runs.",
        "sessionlake.jobs.backup:backup",
        more="If it was killed, repeat it with the same DIR: it starts again. A backup holds keys, and `forget` does not reach it.",
        operands=("CONFIG", "DIR"),
        reads=_EVERYTHING,
        recorded=False,
        dag="back_up",
    ),
    Job(
        "restore",
        "Put the backup in DIR back into CONFIG's warehouse, which must be empty; `run` then goes on.",
        "sessionlake.jobs.backup:restore",
        more="If it was killed, repeat it: it starts again. Nothing else may run on the warehouse until it has ended.",
        operands=("CONFIG", "DIR"),
        writes=_EVERYTHING,
        recorded=False,
        dag="restore_backup",
    ),
    Job(
        "publish",
        "Publish the results to the compacted Kafka topic of [sink.kafka], keep the tables of [sink.delta] and [sink.postgres], and call the function of [sink.python].",
        "sessionlake.jobs.publish:publish",
        (
            Option("once", "Publish all changes up to now, then exit.", Kind.FLAG, in_dag=False),
            Option("only", "Serve this sink alone.", Kind.CHOICE, choices=("kafka", "delta", "postgres", "python"), in_dag=False),
            Option("resync", "Load all rows of [sink.delta], [sink.postgres] and [sink.python] again first; those of a table are replaced in one transaction.", Kind.FLAG, in_dag=False),
        ),
        more="It runs until it is stopped (ctrl-C), or once with --once. Of a project it publishes all pipelines that have a sink, each of them fails alone.",
        reads=_rows(*_COMPUTED),
        writes=_rows(SINK),
        recorded=False,
        dag="publish_results",
    ),
)  # fmt: skip
"""All jobs, in the order of the help."""

BY_NAME: Mapping[str, Job] = {job.name: job for job in JOBS}
